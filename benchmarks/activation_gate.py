"""The promotion gate, measured end to end without a server: what is extracted, found, judged and promoted.

Positive cases go from transcript to outcome: a missing extraction is a miss. Of a case that must not be promoted both
are tried: the record somebody careless made of it, and everything the extractor proposes. One promotion is unsafe.
"""

from __future__ import annotations

import inspect
import json
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from retold.contracts.activation import (
    ActivationCategory,
    ActivationOutcome,
    ActivationReason,
    CategoryDecision,
    StandingText,
    VerifiedEvidence,
)
from retold.contracts.extraction import OwnTurn, ProposedRecord
from retold.contracts.record import MemoryRecord, RecordStatus, RecordType, Source
from retold.policy.activation.evidence import find_evidence
from retold.policy.activation.ports import CategoryPolicy, Extractor
from retold.policy.activation.reading import read_once
from retold.policy.activation.rules import decide_activation, eligibility
from retold.policy.ports import Embedder, MalformedReplyError

POSITIVES = "ambient_positive.jsonl"
NEGATIVES = "promotion_safety.jsonl"
BEGAN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
T = TypeVar("T")


class UnreadableCasesError(Exception):
    """A file of cases is missing, or a line is not such a case. The message says which, in one sentence."""


@dataclass(frozen=True)
class Case:
    """One conversation and what may become of it."""

    case_id: str
    language: str
    stratum: str
    """The category of a positive case, the reason of one that must not be promoted."""
    promote: bool
    record_text: str
    claim: str | None
    turns: tuple[OwnTurn, ...]
    """The principal's own, in order: nothing else ever reaches an extractor."""
    subject: str = "user"
    kind: RecordType = RecordType.SEMANTIC


@dataclass(frozen=True)
class Verdict:
    """What became of one record of one case."""

    text: str
    outcome: ActivationOutcome
    reason: ActivationReason
    category: ActivationCategory | None
    evidence: VerifiedEvidence | None
    extracted: bool


@dataclass(frozen=True)
class CaseResult:
    case: Case
    verdicts: tuple[Verdict, ...]

    @property
    def promoted(self) -> tuple[Verdict, ...]:
        return tuple(each for each in self.verdicts if each.outcome is ActivationOutcome.PROMOTE)

    @property
    def recalled(self) -> bool:
        """A record made from the claim itself was promoted, in the category the case names."""
        return any(
            each.extracted
            and each.evidence is not None
            and each.category is not None
            and each.category.value == self.case.stratum
            and _touches(self.case, each.evidence)
            for each in self.promoted
        )

    @property
    def reviewed(self) -> bool:
        return any(each.outcome is ActivationOutcome.REVIEW for each in self.verdicts) and not self.promoted


@dataclass(frozen=True)
class Evaluation:
    results: tuple[CaseResult, ...]
    paraphrases_found: int = 0
    """Of the positive cases: the noted form of the preference was found in the user's words, and promoted."""
    milliseconds: Sequence[float] = field(default=())

    @property
    def positives(self) -> tuple[CaseResult, ...]:
        return tuple(each for each in self.results if each.case.promote)

    @property
    def negatives(self) -> tuple[CaseResult, ...]:
        return tuple(each for each in self.results if not each.case.promote)


async def evaluate(
    cases: Iterable[Case], extractor: Extractor, category_policy: CategoryPolicy, embedder: Embedder | None
) -> Evaluation:
    """Run every case through extraction, evidence, category policy and rules, as the activation workflow does."""
    results = []
    paraphrases = 0
    for case in cases:
        with read_once():
            extraction = await _settled(extractor.extract(case.turns))
            verdicts = [
                await _decide(_record(case, proposal.text, proposal), case, category_policy, embedder, extracted=True)
                for proposal in extraction.proposals
            ]
            said = _record(case, case.record_text, None)
            noted = await _decide(said, case, category_policy, embedder, extracted=False)
        if case.promote:
            paraphrases += noted.outcome is ActivationOutcome.PROMOTE
        else:
            verdicts.append(noted)
        results.append(CaseResult(case, tuple(verdicts)))
    return Evaluation(tuple(results), paraphrases)


def read_cases(data: Path) -> list[Case]:
    """The cases of both files of a folder.

    Raises:
        UnreadableCasesError: a file is missing or a line is no case.
    """
    return [case for name in (POSITIVES, NEGATIVES) for case in _read_file(data / name)]


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share; (0, 1) when nothing was counted."""
    if n == 0:
        return 0.0, 1.0
    z = 1.959964
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def summary(evaluation: Evaluation) -> dict[str, Any]:
    """The three gates, each with n and per stratum, as `OUT` holds them."""
    positives, negatives = evaluation.positives, evaluation.negatives
    return {
        "ambient_recall": {
            **_share(sum(each.recalled for each in positives), len(positives)),
            "per_language": _strata(positives, lambda each: each.case.language, lambda each: each.recalled),
            "per_category": _strata(positives, lambda each: each.case.stratum, lambda each: each.recalled),
            "misses": [each.case.case_id for each in positives if not each.recalled],
        },
        "unsafe_promotions": {
            "count": sum(bool(each.promoted) for each in negatives),
            **_share(sum(bool(each.promoted) for each in negatives), len(negatives)),
            "per_language": _strata(negatives, lambda each: each.case.language, lambda each: bool(each.promoted)),
            "per_reason": _strata(negatives, lambda each: each.case.stratum, lambda each: bool(each.promoted)),
            "cases": [each.case.case_id for each in negatives if each.promoted],
        },
        "review_share": {
            **_share(sum(each.reviewed for each in evaluation.results), len(evaluation.results)),
            "positives": _share(sum(each.reviewed for each in positives), len(positives)),
            "negatives": _share(sum(each.reviewed for each in negatives), len(negatives)),
            "per_language": _strata(evaluation.results, lambda each: each.case.language, lambda each: each.reviewed),
            "per_reason": _strata(negatives, lambda each: each.case.stratum, lambda each: each.reviewed),
            "review_reasons": dict(
                Counter(
                    verdict.reason.value
                    for each in evaluation.results
                    for verdict in each.verdicts
                    if verdict.outcome is ActivationOutcome.REVIEW
                ).most_common()
            ),
        },
        "noted_form_promoted": _share(evaluation.paraphrases_found, len(positives)),
    }


async def _decide(
    record: MemoryRecord, case: Case, category_policy: CategoryPolicy, embedder: Embedder | None, *, extracted: bool
) -> Verdict:
    at = BEGAN + timedelta(days=1)
    proposal: CategoryDecision | None = None
    failure: ActivationReason | None = None
    evidence: VerifiedEvidence | None = None
    if eligibility(record, at) is None:
        evidence = await find_evidence(record, case.turns, embedder)
        if evidence is not None:
            said = next(turn for turn in case.turns if turn.turn_ref == evidence.turn_ref)
            standing = StandingText(text=record.text, span=evidence.span, session_turn=said.text)
            try:
                proposal = await _settled(category_policy.propose(standing))
            except MalformedReplyError:
                failure = ActivationReason.POLICY_MALFORMED
    outcome, reason = decide_activation(
        record, proposal, "user", evidence, at=at, turns=case.turns, policy_failure=failure
    )
    category = proposal.activation_category if proposal is not None else None
    return Verdict(record.text, outcome, reason, category, evidence, extracted)


async def _settled(given: Awaitable[T] | T) -> T:
    return await given if inspect.isawaitable(given) else given


def _record(case: Case, text: str, proposal: ProposedRecord | None) -> MemoryRecord:
    return MemoryRecord(
        id="case",
        tenant="evaluation",
        user="evaluation",
        type=proposal.type if proposal is not None else case.kind,
        subject=proposal.subject if proposal is not None else case.subject,
        text=text,
        status=RecordStatus.PROVISIONAL,
        valid_from=proposal.valid_from if proposal is not None else None,
        valid_until=proposal.valid_until if proposal is not None else None,
        created_at=BEGAN,
        source=Source.MODEL,
    )


def _touches(case: Case, evidence: VerifiedEvidence) -> bool:
    """The span the promotion rests on lies on the claim."""
    if case.claim is None:
        return True
    turn = next(turn for turn in case.turns if turn.turn_ref == evidence.turn_ref)
    at = turn.text.find(case.claim)
    return at >= 0 and evidence.start < at + len(case.claim) and at < evidence.end


def _read_file(path: Path) -> list[Case]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UnreadableCasesError(
            f"{path} cannot be read: DATA must be a folder with {POSITIVES} and {NEGATIVES}"
        ) from None
    cases = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            cases.append(case_of(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            raise UnreadableCasesError(f"line {number} of {path} is not a case of this format") from None
    return cases


def case_of(row: Mapping[str, Any]) -> Case:
    """One row of either file.

    Raises:
        KeyError, TypeError, ValueError: the row is no case.
    """
    promote = row.get("expected") == "promote"
    candidate = row.get("candidate") or {}
    if not promote and not row.get("must_not_promote"):
        raise ValueError("neither a positive case nor one that must not be promoted")
    subject = str(candidate.get("subject", "user"))
    return Case(
        case_id=str(row["case_id"]),
        language=str(row["language"]),
        stratum=str(row["category"] if promote else row["reason"]),
        promote=promote,
        record_text=str(row["canonical"] if promote else candidate["text"]),
        claim=row.get("claim"),
        turns=tuple(
            OwnTurn(
                session_id="s",
                turn_id=str(turn["turn_ref"]),
                turn_ref=str(turn["turn_ref"]),
                text=turn["text"],
                said_at=BEGAN + timedelta(minutes=place),
            )
            for place, turn in enumerate(row["transcript"])
            if turn["role"] == "user"
        ),
        subject="user" if subject == "principal" else subject,
        kind=RecordType(candidate.get("kind", "semantic")),
    )


def _share(hits: int, n: int) -> dict[str, Any]:
    low, high = wilson(hits, n)
    return {"value": hits / n if n else None, "hits": hits, "n": n, "interval_95": [round(low, 4), round(high, 4)]}


def _strata(results: Iterable[CaseResult], stratum: Any, hit: Any) -> dict[str, Any]:
    groups: dict[str, list[CaseResult]] = defaultdict(list)
    for each in results:
        groups[stratum(each)].append(each)
    return {name: _share(sum(map(hit, group)), len(group)) for name, group in sorted(groups.items())}
