"""What counts as the text of somebody, and what is left of a decision or an audit event without it. Pure rules."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from retold.contracts.activation import (
    ActivationCategory,
    ActivationOutcome,
    ActivationReason,
    Applicability,
    EvidenceMethod,
)
from retold.contracts.decision import TurnDecision
from retold.contracts.record import Activation, RecordStatus, RecordType, RetrievalCategory, Source
from retold.contracts.review import Resolution, ReviewStatus
from retold.contracts.stages import (
    AdmitResult,
    Gap,
    GapCategory,
    PlanResult,
    ProposedGap,
    ProposedVerdict,
    RetrieveResult,
    SearchEntry,
    Verdict,
)

GONE = "(forgotten)"
"""Stands where a text was that something still needs to be there."""

WHOLE_BELOW_BYTES = 12
"""A text shorter than this in UTF-8 is only found where it is all that is said: "ok" is in every second sentence."""

_CODES = frozenset(
    member.value
    for vocabulary in (
        Activation, ActivationCategory, ActivationOutcome, ActivationReason, Applicability, EvidenceMethod,
        RecordStatus, RecordType, Resolution, RetrievalCategory, ReviewStatus, Source,
    )
    for member in vocabulary
) | {GONE, ""}  # fmt: skip
"""Words of closed vocabularies: they say nothing about anybody, and a user may happen to have said one of them."""


class Probes:
    """Exact texts that are looked for: as they are, and as JSON writes them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(text for text in texts if text.strip() and text not in _CODES)
        self._long = {text: _spellings(text) for text in self.texts if not _is_short(text)}
        self._short = {text: _spellings(text) for text in self.texts if _is_short(text)}

    def __len__(self) -> int:
        return len(self.texts)

    def within(self, *values: object) -> set[str]:
        """Which of the texts the values hold: strings, or whatever JSON is made of."""
        said = [value for value in _strings(values) if value not in _CODES]
        if not said:
            return set()
        alone = set(said)
        everything = "\n\x00\n".join(said)
        found = {text for text, spellings in self._short.items() if not alone.isdisjoint(spellings)}
        found |= {text for text, spellings in self._long.items() if any(each in everything for each in spellings)}
        return found

    def within_decision(self, decision: TurnDecision) -> set[str]:
        """Short texts are only looked for where a decision may hold any: its codes are ordinary words."""
        everything = decision.model_dump_json()
        return self.within(*_texts_of(decision)) | {
            text for text, spellings in self._long.items() if any(each in everything for each in spellings)
        }

    def within_json(self, document: bytes) -> bool:
        """Whether a JSON document, as bytes, holds one of the texts in a string of its own or inside another."""
        return any(
            (each if long else f'"{each}"').encode() in document
            for long, probes in ((True, self._long), (False, self._short))
            for spellings in probes.values()
            for each in spellings
        )


def without_texts(decision: TurnDecision) -> TurnDecision:
    """The decision as it can be kept: replayed it comes to the same disposition and reason, and it says nothing.

    What planner and judge wrote is replaced; names, references, scores, verdicts and times stay. The digest of what
    was said goes too: of a short text it could be found by trying.
    """
    stand_ins = _StandIns()
    outcomes = decision.outcomes
    return decision.model_copy(
        update={
            "request_digest": GONE,
            "gaps": tuple(Gap(category=gap.category, query=stand_ins.of(gap.query)) for gap in decision.gaps),
            "outcomes": outcomes.model_copy(
                update={
                    "plan": None if outcomes.plan is None else _plan(outcomes.plan, stand_ins),
                    "retrieve": None if outcomes.retrieve is None else _retrieved(outcomes.retrieve, stand_ins),
                    "admit": None if outcomes.admit is None else _admitted(outcomes.admit),
                }
            ),
        }
    )


def without_query(search: SearchEntry) -> SearchEntry:
    return search.model_copy(update={"query": GONE})


def without_words(said: Any) -> Any:
    """JSON of an audit event: numbers, flags, ids of ours and words of closed vocabularies stay, other words go."""
    match said:
        case dict():
            return {key: without_words(value) for key, value in said.items()}
        case list():
            return [without_words(value) for value in said]
        case str() if said not in _CODES and not _is_id(said):
            return GONE
        case _:
            return said


def _texts_of(decision: TurnDecision) -> Iterator[str]:
    outcomes = decision.outcomes
    yield decision.request_digest
    yield from (gap.query for gap in decision.gaps)
    for gap in outcomes.plan.gaps if outcomes.plan is not None else ():
        yield from (gap.category, gap.query)
    for search in outcomes.retrieve.searches if outcomes.retrieve is not None else ():
        yield search.query
    if outcomes.admit is not None:
        yield from outcomes.admit.admitted
        for said in outcomes.admit.verdicts:
            yield from (said.id, said.verdict)


class _StandIns:
    """Equal queries keep being equal, in the way `clean_gaps` compares them, and different ones different."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, query: str) -> str:
        return self._known.setdefault(query.strip().casefold(), f"(forgotten {len(self._known) + 1})")


def _plan(plan: PlanResult, stand_ins: _StandIns) -> PlanResult:
    return plan.model_copy(
        update={
            "gaps": tuple(
                ProposedGap(
                    category=gap.category if gap.category in list(GapCategory) else GONE,
                    query=stand_ins.of(gap.query) if _is_query(gap.query) else "",
                )
                for gap in plan.gaps
            )
        }
    )


def _retrieved(found: RetrieveResult, stand_ins: _StandIns) -> RetrieveResult:
    searches = tuple(
        search.model_copy(update={"query": stand_ins.of(search.query)}) for search in found.searches
    )  # fmt: skip
    return found.model_copy(update={"searches": searches})


def _admitted(answer: AdmitResult) -> AdmitResult:
    judged = {ref.id for ref in answer.judged}
    return answer.model_copy(
        update={
            "admitted": tuple(_known(id, judged) for id in answer.admitted),
            "verdicts": tuple(
                ProposedVerdict(id=_known(said.id, judged), verdict=_known(said.verdict, list(Verdict)))
                for said in answer.verdicts
            ),
        }
    )


def _known(said: str, known: Collection[str]) -> str:
    return said if said in known else GONE


def _is_query(query: str) -> bool:
    try:
        Gap(category=GapCategory.PREFERENCE, query=query.strip())
    except ValidationError:
        return False
    return True


def _is_short(text: str) -> bool:
    return len(text.encode()) < WHOLE_BELOW_BYTES


def _is_id(said: str) -> bool:
    """Made by us out of hexadecimal digits: a random id, a digest."""
    digits = said.removeprefix("sha256:").replace("-", "")
    return len(digits) >= 32 and all(digit in "0123456789abcdef" for digit in digits)


def _spellings(text: str) -> tuple[str, ...]:
    """As it is, and inside JSON: with escapes for what must be escaped, and for all that is not ASCII, in either case
    of the hexadecimal digits, and for what Go's encoder also escapes."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    ascii_only = json.dumps(text)[1:-1]
    loud = "".join(
        char if char.isascii() else "".join(f"\\u{unit:04X}" for unit in _utf16(char))
        for char in plain
    )  # fmt: skip
    careful = plain
    for char in "<>&\u2028\u2029":
        careful = careful.replace(char, f"\\u{ord(char):04x}")
    return tuple(dict.fromkeys((text, plain, ascii_only, loud, careful)))


def _utf16(char: str) -> Iterator[int]:
    units = char.encode("utf-16-be")
    for start in range(0, len(units), 2):
        yield int.from_bytes(units[start : start + 2], "big")


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():  # the keys are ours
                yield from _strings(each)
        case list() | tuple():
            for each in value:
                yield from _strings(each)
        case _:
            return
