"""Real dialogue data as `retold demo-real` reads it: pools of records by principal, and cases that ask about them.

A folder holds `pools/*.jsonl` (records: pool, id, text, subject, kind, created_at) and case files: `recall.jsonl`
(the gold records must be found), `preference.jsonl` (a stored preference should shape the answer), `ordinary.jsonl`
and `unanswerable.jsonl` (inject nothing). A principal is named `.../Name`; a record whose subject is that name is
about the user.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retold.cli.json_lines import json_lines
from retold.contracts.record import RecordWrite, RetrievalCategory, Source
from retold.contracts.turn import Principal

KINDS = ("recall", "preference", "ordinary", "unanswerable")
USABLE_SUPPORT = frozenset({"lexical", "partial"})
"""Recall rows whose stored fact literally holds the answer; in the others it does not, so they cannot be a gate."""


class DataMissingError(Exception):
    """The folder is not there, or is not of this format; the message says what was looked for."""


@dataclass(frozen=True)
class RealCase:
    kind: str
    case_id: str
    stratum: str
    """Ordinary turns: the kind of look-alike, or `easy`. Others: their kind."""
    principal: str
    pool: str
    text: str
    gold_ids: tuple[str, ...] = ()

    @property
    def asks_for_memory(self) -> bool:
        return self.kind in ("recall", "preference")


@dataclass(frozen=True)
class RealData:
    records: dict[str, list[dict[str, Any]]]
    """Rows by pool."""
    cases: Sequence[RealCase]

    @classmethod
    def read(cls, folder: Path) -> RealData:
        """Raises:
        DataMissingError: the folder lacks its pools or has no case file at all.
        """
        pools = sorted((folder / "pools").glob("*.jsonl"))
        if not pools:
            raise DataMissingError(f"no pools/*.jsonl under {str(folder)!r}: name the folder with DATA=DIR")
        records: dict[str, list[dict[str, Any]]] = {}
        for row in (row for path in pools for row in json_lines(path)):
            records.setdefault(row["pool"], []).append(row)
        cases = [case for kind in KINDS for case in _cases(folder / f"{kind}.jsonl", kind) if case.pool in records]
        if not cases:
            raise DataMissingError(f"none of {', '.join(f'{kind}.jsonl' for kind in KINDS)} under {str(folder)!r}")
        return cls(records, cases)

    def sample(self, seed: int, *, principals: int, per_kind: int) -> Sequence[RealCase]:
        """Cases of a few principals, at most so many of a kind, the same for the same seed.

        Principals are drawn among those with recall cases, and as many again among the others, so that both pools
        of facts and pools of preferences are met.
        """
        draw = random.Random(seed)
        with_recall = sorted({case.principal for case in self.cases if case.kind == "recall"})
        others = sorted({case.principal for case in self.cases} - set(with_recall))
        chosen = {
            *draw.sample(with_recall, min(principals, len(with_recall))),
            *draw.sample(others, min(principals, len(others))),
        }
        sampled: list[RealCase] = []
        for kind in KINDS:
            of_kind = [case for case in self.cases if case.kind == kind and case.principal in chosen]
            sampled += draw.sample(of_kind, min(per_kind, len(of_kind)))
        return sampled

    def lines(self, principal: str, pool: str) -> Iterator[RecordWrite]:
        """The pool as this principal's own records."""
        name = principal.rsplit("/", 1)[-1]
        for row in self.records[pool]:
            about_user = row["subject"] in (name, "user")
            yield RecordWrite(
                id=row["id"],
                text=row["text"],
                subject="user" if about_user else row["subject"],
                category=RetrievalCategory.PREFERENCES if row["kind"] == "preference" else RetrievalCategory.PERSONAL,
                created_at=row["created_at"],
                source=Source.IMPORT,
            )


def as_principal(name: str) -> Principal:
    """`a/b/Name` is user `Name` of tenant `a/b`."""
    tenant, _, user = name.rpartition("/")
    return Principal(tenant=tenant or "data", user=user)


def _cases(path: Path, kind: str) -> Iterator[RealCase]:
    if not path.is_file():
        return
    for row in json_lines(path):
        if kind == "recall" and row.get("answer_support", "lexical") not in USABLE_SUPPORT:
            continue
        yield RealCase(
            kind=kind,
            case_id=row["case_id"],
            stratum=row.get("hard")
            or ("easy" if kind == "ordinary" else row.get("category") or row.get("topic", kind)),
            principal=row["principal"],
            pool=row["pool"],
            text=row["turn"] if kind == "ordinary" else row["question"],
            gold_ids=tuple(row.get("gold_record_ids") or ()),
        )
