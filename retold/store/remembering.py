"""One call of `remember`: statements in, and for each what became of it and of what it met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlmodel import col

from retold.contracts.lifecycle import LifecycleReport, WriteOutcome
from retold.contracts.record import RecordId, RecordRef, RecordWrite
from retold.store.changes import Changes
from retold.store.settling import Effects, Settling
from retold.store.tables import RecordRow
from retold.store.writing import Manner, RefusedWriteError, Writer


def remember(changes: Changes, writes: Sequence[RecordWrite], manner: Manner) -> LifecycleReport:
    """Write what is not refused, settle what it meets, and close the changes."""
    settling = Settling(changes)
    writer = Writer(changes, settling, manner)
    writer.load(writes)
    written: list[tuple[RecordRow, bool] | RefusedWriteError] = []
    for write in writes:
        try:
            written.append(writer.write(write))
        except RefusedWriteError as error:
            written.append(error)
    effects = settling.run()
    again = _done_before(changes, written, effects, manner)
    changes.close()
    return _report(written, again, effects)


def report(rows: Iterable[RecordRow], effects: Effects, changed: Iterable[RecordId]) -> LifecycleReport:
    """What one change of one record did, or of several together."""
    ids = set(changed)
    return LifecycleReport(
        outcomes=_with_the_rest(
            [_outcome(index, row, row.id in ids, effects) for index, row in enumerate(rows)], effects
        )
    )


def ref_of(row: RecordRow) -> RecordRef:
    return RecordRef(id=row.id, version=row.version)


def _report(
    written: Sequence[tuple[RecordRow, bool] | RefusedWriteError], again: set[RecordId], effects: Effects
) -> LifecycleReport:
    outcomes = []
    for index, line in enumerate(written):
        if isinstance(line, RefusedWriteError):
            refused = WriteOutcome(index=index, disposition="refused", field=line.field, message=str(line))
            outcomes.append(refused)
        else:
            row, new = line
            outcomes.append(_outcome(index, row, new or row.id in again, effects))
    return LifecycleReport(outcomes=_with_the_rest(outcomes, effects))


def _done_before(
    changes: Changes,
    written: Sequence[tuple[RecordRow, bool] | RefusedWriteError],
    effects: Effects,
    manner: Manner,
) -> set[RecordId]:
    """Of what is there already, what this very call has written: its first answer was lost, and it is asked again."""
    unchanged = {row.id: row for row, new in (w for w in written if not isinstance(w, RefusedWriteError)) if not new}
    if not unchanged:
        return set()
    again = changes.done_before(unchanged.keys(), manner.ways)
    if again:
        for row in changes.rows(col(RecordRow.superseded_by).in_(again)):
            effects.note(effects.superseded, str(row.superseded_by), row)
        for row in changes.rows(col(RecordRow.suspended_by).in_(again)):
            effects.note(effects.suspended, str(row.suspended_by), row)
        for id in again:
            for row in changes.rows(col(RecordRow.id).in_(unchanged[id].conflicts_with)):
                effects.note(effects.conflicting, id, row)
    return again


def _outcome(index: int, row: RecordRow, written: bool, effects: Effects) -> WriteOutcome:
    def of(effect: dict[RecordId, list[RecordRow]]) -> tuple[RecordRef, ...]:
        return tuple(ref_of(other) for other in effect.pop(row.id, ()))

    return WriteOutcome(
        index=index,
        disposition="written" if written else "unchanged",
        ref=ref_of(row),
        superseded=of(effects.superseded),
        suspended=of(effects.suspended),
        conflicting=of(effects.conflicting),
        released=of(effects.released),
    )


def _with_the_rest(outcomes: list[WriteOutcome], effects: Effects) -> tuple[WriteOutcome, ...]:
    """Effects of records that are in no outcome (one let go of, by what it was superseded by) go with the first."""
    for number, outcome in enumerate(outcomes):
        if outcome.disposition == "written":
            rest: dict[str, tuple[RecordRef, ...]] = {}
            for name in ("superseded", "suspended", "conflicting", "released"):
                others = tuple(ref_of(row) for rows in getattr(effects, name).values() for row in rows)
                rest[name] = (*getattr(outcome, name), *others)
            outcomes[number] = outcome.model_copy(update=rest)
            break
    return tuple(outcomes)
