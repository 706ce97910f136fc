"""After a change: which records about the same attribute still hold, which are suspended, which disagree.

Every way to write ends here, so every way to write follows the same rules (`retold.policy.authority`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlmodel import col

from retold.contracts.record import ACTIVE_STATUSES, RecordId, RecordStatus, RecordType, Source, composed
from retold.policy.authority import Claim, Settled, Suspension, has_slot, settle, stated_at
from retold.store.changes import Changes, make_conditional
from retold.store.records import is_called, live_at
from retold.store.tables import RecordRow

_CHUNK = 500


class Slot(NamedTuple):
    """What holds one value at a time, of one principal."""

    scope: str
    subject: str
    attribute: str


def slot_of(row: RecordRow) -> Slot | None:
    if row.attribute is None or not has_slot(RecordType(row.type), row.attribute):
        return None
    return Slot(row.scope, composed(row.subject), composed(row.attribute))


def claim_of(row: RecordRow) -> Claim:
    return Claim(
        id=row.id,
        says=" ".join(unicodedata.normalize("NFC", row.text).casefold().split()),
        source=Source(row.source),
        stated_at=stated_at(row.event_at, row.created_at),
        temporary=row.temporary,
        begins=row.valid_from,
        ends=row.valid_until,
    )


@dataclass
class Effects:
    """What the settling did to records, by the record that it was done for."""

    superseded: dict[RecordId, list[RecordRow]] = field(default_factory=dict)
    suspended: dict[RecordId, list[RecordRow]] = field(default_factory=dict)
    conflicting: dict[RecordId, list[RecordRow]] = field(default_factory=dict)
    released: dict[RecordId, list[RecordRow]] = field(default_factory=dict)

    def note(self, effect: dict[RecordId, list[RecordRow]], cause: RecordId, row: RecordRow) -> None:
        rows = effect.setdefault(cause, [])
        if row not in rows:
            rows.append(row)


class Settling:
    """What is due after the changes of one transaction. Tell it what changed, then `run` it once."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._due: dict[Slot, None] = {}
        self._gone: list[RecordId] = []
        self._settled: set[RecordId] = set()
        self.effects = Effects()

    def changed(self, row: RecordRow) -> None:
        """The row is new, or says or counts as something else: what it stands beside is to be looked at again."""
        if (slot := slot_of(row)) is not None:
            self._due[slot] = None

    def taken_back(self, row: RecordRow) -> None:
        """What the row said does not hold any more: nobody is in conflict with it, or suspended by it."""
        self.changed(row)
        if row.temporary or row.valid_from is not None:  # nothing else suspends
            self._gone.append(row.id)
        self._agree_with_all(row)

    def look_at(self, row: RecordRow) -> None:
        """Its time may have come or gone: nobody changed it, but what it was suspended by has ended or begun."""
        self.changed(row)
        if slot_of(row) is not None or row.suspended_by is None or row.suspended_from is None:
            return
        at = self._changes.at
        if row.suspended_until is not None and row.suspended_until <= at:
            self._resume(row)
        elif row.suspended_from <= at and not self._is_temporary(row.suspended_by):
            self.supersede(row, row.suspended_by)

    def disagree(self, one: RecordRow, other: RecordRow) -> None:
        """Neither can be preferred: neither is used until somebody says which holds."""
        for row, peer in ((one, other), (other, one)):
            if peer.id not in row.conflicts_with:
                with self._changes.changing(row, "record.conflict_flagged"):
                    _set_conflicts(row, {*row.conflicts_with, peer.id})
                self.effects.note(self.effects.conflicting, peer.id, row)

    def supersede(self, row: RecordRow, by: RecordId) -> None:
        """The row is history: `by` holds instead."""
        with self._changes.changing(row, "record.superseded"):
            row.status, row.superseded_by = RecordStatus.SUPERSEDED.value, by
            make_conditional(row)
            _end_suspension(row)
        self.effects.note(self.effects.superseded, by, row)
        self.taken_back(row)

    def suspend(self, row: RecordRow, by: RecordRow) -> None:
        """The row does not hold while `by`, which is temporary, does."""
        with self._changes.changing(row, "record.suspended"):
            row.suspended_by, row.suspended_until = by.id, by.valid_until
            row.suspended_from = by.valid_from or self._changes.at
        self.effects.note(self.effects.suspended, by.id, row)

    def run(self) -> Effects:
        """Settle what is due. Each slot once: what falls away in one cannot make another fall."""
        self._changes.session.flush()
        for slot, rows in self.members(list(self._due)).items():
            self._due.pop(slot, None)
            self._settle(rows)
        self._end_what_the_gone_suspended()
        return self.effects

    def members(self, slots: Sequence[Slot]) -> dict[Slot, list[RecordRow]]:
        """The live records of each slot, by id; a slot without any has an empty list."""
        found: dict[Slot, list[RecordRow]] = {slot: [] for slot in slots}
        for start in range(0, len(slots), _CHUNK):
            some = slots[start : start + _CHUNK]
            rows = self._changes.rows(
                # Two lists, not one of pairs: SQLite finds these by index.
                is_called(col(RecordRow.subject), {slot.subject for slot in some}),
                is_called(col(RecordRow.attribute), {slot.attribute for slot in some}),
                *live_at(self._changes.at),
            )
            for row in rows:
                slot = slot_of(row)
                if slot is not None and slot in found:
                    found[slot].append(row)
        return found

    def _settle(self, rows: Sequence[RecordRow]) -> None:
        by_id = {row.id: row for row in rows}
        self._settled |= by_id.keys()
        if len(rows) == 1 and rows[0].suspended_by is None and not rows[0].conflicts_with:
            return  # nothing beside it, now or before
        settled = settle([claim_of(row) for row in rows], self._changes.at)
        outside = self._live_outside(rows)
        for row in sorted(rows, key=lambda row: claim_of(row).stated_at):
            if (winner := settled[row.id].superseded_by) is not None:
                self._link(by_id[winner], row)
                self.supersede(row, winner)
        for row in rows:
            if row.status in ACTIVE_STATUSES:
                self._apply_suspension(row, settled[row.id], outside)
                self._apply_conflicts(row, settled[row.id], by_id, outside)

    def _link(self, winner: RecordRow, loser: RecordRow) -> None:
        """A new record says what it replaced. One that was there and prevailed stays as it is: nothing befell it."""
        if self._changes.is_new(winner):
            winner.supersedes = loser.id
        elif winner.id in self._changes.touched:
            with self._changes.changing(winner, "record.prevailed"):
                winner.supersedes = loser.id

    def _apply_suspension(self, row: RecordRow, settled: Settled, outside: set[RecordId]) -> None:
        wanted = settled.suspension
        if wanted is None and row.suspended_by is not None and row.suspended_by not in outside:
            self._resume(row)
        elif wanted is not None and wanted != Suspension(row.suspended_by, row.suspended_from, row.suspended_until):
            with self._changes.changing(row, "record.suspended"):
                row.suspended_by, row.suspended_from = wanted.by, wanted.begins
                row.suspended_until = wanted.ends
            if wanted.by is not None:
                self.effects.note(self.effects.suspended, wanted.by, row)

    def _apply_conflicts(
        self, row: RecordRow, settled: Settled, members: dict[RecordId, RecordRow], outside: set[RecordId]
    ) -> None:
        wanted = settled.conflicts_with | (set(row.conflicts_with) & outside)
        gone, new = set(row.conflicts_with) - wanted, wanted - set(row.conflicts_with)
        if not gone and not new:
            return
        with self._changes.changing(row, "record.conflict_flagged" if new else "record.conflict_resolved"):
            _set_conflicts(row, wanted)
        for cause in new:
            self.effects.note(self.effects.conflicting, cause, row)
        for cause in gone:
            self.effects.note(self.effects.released, cause, row)
        # What is not settled beside it, because its time is over, names it too.
        self._no_longer_name(row, gone - members.keys())

    def _live_outside(self, rows: Sequence[RecordRow]) -> set[RecordId]:
        """Records of other slots, or of none, that somebody said these disagree with or that suspend them."""
        named = {id for row in rows for id in (*row.conflicts_with, row.suspended_by) if id is not None}
        if not (named := named - {row.id for row in rows}):
            return set()
        return {row.id for row in self._changes.rows(col(RecordRow.id).in_(named), *live_at(self._changes.at))}

    def _agree_with_all(self, row: RecordRow) -> None:
        if not row.conflicts_with:
            return
        self._no_longer_name(row, row.conflicts_with)
        with self._changes.changing(row, "record.conflict_resolved"):
            _set_conflicts(row, ())

    def _no_longer_name(self, row: RecordRow, peers: Collection[RecordId]) -> None:
        """A conflict is named by both or by neither: these are not in one with the row any more."""
        if not peers:
            return
        for peer in self._changes.rows(col(RecordRow.id).in_(peers)):
            with self._changes.changing(peer, "record.conflict_resolved"):
                _set_conflicts(peer, set(peer.conflicts_with) - {row.id})
            self.effects.note(self.effects.released, row.id, peer)

    def _end_what_the_gone_suspended(self) -> None:
        """Of what was not just settled: somebody had said that the two disagree."""
        if not self._gone:
            return
        self._changes.session.flush()
        for row in self._changes.rows(col(RecordRow.suspended_by).in_(self._gone)):
            if row.id not in self._settled:
                self._resume(row)

    def _resume(self, row: RecordRow) -> None:
        cause = str(row.suspended_by)
        with self._changes.changing(row, "record.suspension_ended"):
            _end_suspension(row)
        self.effects.note(self.effects.released, cause, row)

    def _is_temporary(self, record_id: RecordId) -> bool:
        return any(row.temporary for row in self._changes.rows(col(RecordRow.id) == record_id))


def _end_suspension(row: RecordRow) -> None:
    row.suspended_by = row.suspended_from = row.suspended_until = None


def _set_conflicts(row: RecordRow, with_: Iterable[RecordId]) -> None:
    # A new list, not the old one changed: only then does the row know that it has changed.
    row.conflicts_with = sorted(with_)
    row.conflicting = bool(row.conflicts_with)
