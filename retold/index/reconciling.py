"""Proves that the index shows what the store has, page by page, while both are being written.

A difference is one only if it stands still. Between reading a record and reading its point either may change, so what
looks different is looked at again: record, outbox, point, record. A change is in the outbox from its commit until the
index has flushed it; so when the record is the same before and after, and the outbox had nothing of it after the
first look, the point must show it. What keeps moving is followed, and looked at again after a moment. A record that
cannot be read is named, belongs in no index, and stops nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from retold.contracts.indexing import (
    FINDINGS_MAX,
    Difference,
    IndexFinding,
    ReconcilePhase,
    ReconcileReport,
    ReconcileStep,
    ReconcileStepResult,
    UnreadableRecord,
)  # fmt: skip
from retold.contracts.record import MemoryRecord, RecordId
from retold.index.filters import Key
from retold.index.generations import Followed
from retold.index.indexer import Indexer, belongs_in_index
from retold.index.points import passage, payload, point_id, read_stored
from retold.index.port import RecordIndex, ScannedPoint
from retold.index.sparse import Bm25Encoder
from retold.policy.limits import utc_now

PAGE = 128
PAGES_A_STEP = 16
"""A step compares some 2,000 records or points: what a death costs, and a few megabytes at a time."""

LOOKS = 10
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 1.0


class ReconciledStore(Protocol):
    async def record_ids(self, after: RecordId | None, limit: int) -> Sequence[RecordId]: ...

    async def each_by_id(self, ids: Collection[RecordId]) -> Mapping[RecordId, MemoryRecord | UnreadableRecord]: ...

    async def pending_index_among(self, ids: Collection[RecordId]) -> set[RecordId]: ...

    async def enqueue_index(self, ids: Sequence[RecordId], at: datetime) -> None: ...


class Reconciler:
    """Compares one store with one generation of its index.

    Args:
        target: the generation to compare.
        through_outbox: repair as every change goes, by the outbox, into every generation that follows it. Otherwise
            straight into this one: how a generation is built.
    """

    def __init__(
        self,
        store: ReconciledStore,
        indexer: Indexer,
        target: Followed,
        *,
        through_outbox: bool = True,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._indexer = indexer
        self._target = target
        self._through_outbox = through_outbox
        self._now = now
        self._bm25 = Bm25Encoder()

    @property
    def _index(self) -> RecordIndex:
        return self._target.index

    async def step(self, step: ReconcileStep) -> ReconcileStepResult:
        """Compare from where the step begins, at most :data:`PAGES_A_STEP` pages of it.

        Raises:
            IndexUnavailableError, or the store's or embedder's error: the step can be made again.
        """
        report, after = ReconcileReport(), step.after
        page = self._records if step.phase is ReconcilePhase.RECORDS else self._points
        for _ in range(PAGES_A_STEP):
            found, after = await page(after, step.repair)
            report = report.plus(found)
            if after is None:
                break
        return ReconcileStepResult(report=report, following=_following(step, after))

    async def _records(self, after: str | None, repair: bool) -> tuple[ReconcileReport, str | None]:
        """Every record that belongs in the index against its point."""
        ids = await self._store.record_ids(after, PAGE)
        records = await self._store.each_by_id(ids)
        standing = [id for id in ids if _belongs(records.get(id))]
        unreadable = [id for id in ids if isinstance(records.get(id), UnreadableRecord)]
        points = await self._index.inspect(standing)
        suspects = [id for id in standing if self._compare(id, records[id], points.get(id)) is not None] + unreadable
        found = await self._confirmed(suspects)
        report = await self._reported(found, [], repair)
        report = report.model_copy(update={"records": len(ids), "indexed": len(standing)})
        return report, ids[-1] if len(ids) == PAGE else None

    async def _points(self, after: str | None, repair: bool) -> tuple[ReconcileReport, str | None]:
        """Every point against its record: what must not be there. What is wrong with the rest was found by records."""
        page = await self._index.scan(after)
        owners = {each.key: _owner(each) for each in page.points}
        records = await self._store.each_by_id([id for id in owners.values() if id is not None])
        suspects = [id for id in owners.values() if id is not None and not _belongs(records.get(id))]
        found = {
            id: each
            for id, each in (await self._confirmed(suspects)).items()
            if each.difference in (Difference.EXTRA, Difference.LAGGING)
        }
        unreadable = [
            IndexFinding(
                difference=Difference.UNREADABLE, point=key, detail="it does not say which record it is of, or lies"
                " under another record's key"
            )
            for key, id in owners.items()
            if id is None
        ]  # fmt: skip
        report = await self._reported(found, unreadable, repair)
        return report.model_copy(update={"points": len(page.points)}), page.after

    async def _confirmed(self, suspects: Sequence[RecordId]) -> dict[RecordId, IndexFinding]:
        """Of these, what differs and stands still; and what still moves after :data:`LOOKS` looks, as lagging."""
        settled: dict[RecordId, IndexFinding] = {}
        lagging: dict[RecordId, IndexFinding] = {}
        pause_s = FIRST_PAUSE_S
        for look in range(LOOKS if suspects else 0):
            if look:
                await self._indexer.drain()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
            before = await self._store.each_by_id(suspects)
            pending = await self._store.pending_index_among(suspects)
            points = await self._index.inspect(suspects)
            after = await self._store.each_by_id(suspects)
            lagging = {}
            for id in suspects:
                if (found := self._compare(id, before.get(id), points.get(id))) is None:
                    continue
                if found.difference is Difference.UNREADABLE_RECORD:
                    settled[id] = found  # following it again would not make it readable
                elif id in pending or before.get(id) != after.get(id):
                    lagging[id] = found.model_copy(update={"difference": Difference.LAGGING})
                else:
                    settled[id] = found
            suspects = list(lagging)
            if not suspects:
                break
        return {**settled, **lagging}

    async def _reported(
        self, found: Mapping[RecordId, IndexFinding], unreadable: Sequence[IndexFinding], repair: bool
    ) -> ReconcileReport:
        findings = (*found.values(), *unreadable)
        repaired = 0
        if repair and findings:
            left = await self._repaired(found)
            await self._index.delete_points([each.point for each in unreadable])
            repaired = len(findings) - len(left)
        return ReconcileReport(
            differences=dict(Counter(each.difference for each in findings)),
            repaired=repaired,
            findings=findings[:FINDINGS_MAX],
        )

    async def _repaired(self, found: Mapping[RecordId, IndexFinding]) -> Mapping[RecordId, IndexFinding]:
        """What still differs when these were brought into line. Of what cannot be read the index keeps nothing."""
        unreadable = {id: each for id, each in found.items() if each.difference is Difference.UNREADABLE_RECORD}
        await self._index.delete(list(unreadable))
        ids = [id for id in found if id not in unreadable]
        if self._through_outbox:
            await self._store.enqueue_index(ids, self._now())
            await self._indexer.drain()
        else:
            await self._indexer.bring(self._target, ids)
        return {**await self._confirmed(ids), **unreadable}

    def _compare(
        self, id: RecordId, record: MemoryRecord | UnreadableRecord | None, point: ScannedPoint | None
    ) -> IndexFinding | None:  # fmt: skip
        """How a point differs from what its record, as it is, should look like in the index; None: not at all."""
        if isinstance(record, UnreadableRecord):
            return IndexFinding(
                difference=Difference.UNREADABLE_RECORD,
                record_id=id,
                tenant=record.tenant,
                point=point_id(id),
                detail=record.problem,
            )
        expected = record if record is not None and belongs_in_index(record) else None

        def differs(difference: Difference, detail: str) -> IndexFinding:
            return IndexFinding(difference=difference, record_id=id, point=point_id(id), detail=detail)

        match expected, point:
            case None, None:
                return None
            case None, _:
                state = "there is no such record" if record is None else f"its record is {_state(record)}"
                return differs(Difference.EXTRA, state)
            case _, None:
                return differs(Difference.MISSING, "no point")
        assert expected is not None and point is not None
        wrong = _wrong_keys(expected, point)
        if wrong:
            return differs(Difference.STALE, f"differs in {', '.join(wrong)}")
        lacking = self._lacking(expected, point)
        return differs(Difference.INCOMPLETE, lacking) if lacking else None

    def _lacking(self, record: MemoryRecord, point: ScannedPoint) -> str | None:
        if not point.has_dense:
            return "no vector"
        terms = frozenset(self._bm25.document(passage(record)).indices) or None
        return "its words are not the record's" if terms != point.terms else None


def _following(step: ReconcileStep, after: str | None) -> ReconcileStep | None:
    if after is not None:
        return step.model_copy(update={"after": after})
    if step.phase is ReconcilePhase.RECORDS:
        return step.model_copy(update={"phase": ReconcilePhase.POINTS, "after": None})
    return None


def _owner(point: ScannedPoint) -> RecordId | None:
    """The record a point is of; None unless it says so and lies where that record's point belongs."""
    stored = read_stored(point.payload)
    return stored.ref.id if stored is not None and point_id(stored.ref.id) == point.key else None


def _wrong_keys(record: MemoryRecord, point: ScannedPoint) -> list[str]:
    """The payload keys, filters and the rest, that do not say what the record says. The sketch comes of the vector."""
    expected: dict[str, object] = {str(key): value for key, value in payload(record).items()}
    shown = {key: value for key, value in point.payload.items() if key != Key.SKETCH}
    wrong = {key for key in expected.keys() | shown.keys() if expected.get(key) != shown.get(key)}
    return sorted(wrong | ({Key.SKETCH.value} if not point.payload.get(Key.SKETCH) else set()))


def _belongs(record: MemoryRecord | UnreadableRecord | None) -> bool:
    return isinstance(record, MemoryRecord) and belongs_in_index(record)


def _state(record: MemoryRecord) -> str:
    return record.status.value if record.superseded_by is None else "superseded"
