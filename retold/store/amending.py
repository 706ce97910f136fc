"""Changes to a record that is stored: each a function inside a transaction, told what to do by its `Changes`.

Each closes its changes. What it refuses says what to do instead; sent again by the same operation it answers as it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from sqlmodel import col, select

from retold.contracts.lifecycle import CorrectInput, LifecycleReport
from retold.contracts.record import ACTIVE_STATUSES, Activation, RecordStatus, RecordWrite, Source, composed
from retold.contracts.refusal import refusal_text
from retold.policy.authority import Claim, overlap, prevailing, settle, stated_at
from retold.store.changes import Changes, make_conditional
from retold.store.records import as_record, require_promotable
from retold.store.remembering import report
from retold.store.settling import Effects, Settling, claim_of, slot_of
from retold.store.tables import AuditRow, RecordRow
from retold.store.writing import Manner, Writer, content_hash, is_temporary, refuse_secrets

_TICK = timedelta(microseconds=1)


class ChangeRefusedError(ValueError):
    """The record is not in a state in which this can be done; the message says what to do instead."""


class StaleRecordVersionError(ValueError):
    """Somebody changed the record since the caller looked at it."""


def supersede(
    changes: Changes, record_id: str, by: RecordWrite, *, expected_version: int | None = None
) -> LifecycleReport:
    """`by` replaces the record, whoever said either. Both are about the same attribute of the same subject."""
    row = changes.find(record_id)
    settling = Settling(changes)
    if row.status == RecordStatus.SUPERSEDED and changes.made_before(row, "record.superseded"):
        (successor,) = changes.rows(col(RecordRow.id) == row.superseded_by)
        settling.effects.note(settling.effects.superseded, successor.id, row)
        return report([successor], settling.effects, [successor.id])
    _require_version(row, expected_version)
    _require_live(row, changes.at)
    for field in ("scope", "subject", "attribute"):
        its = getattr(row, field)
        if getattr(by, field) != (its if its is None or field == "scope" else composed(its)):
            raise ChangeRefusedError(
                f"{field}: record {row.id} has another one; only a statement about the same thing replaces it"
            )
    if is_temporary(by) and not row.temporary:
        raise ChangeRefusedError(
            "valid_until: what is said for a time only does not replace what stands; remember it, and it holds instead "
            "for its time"
        )
    if by.valid_from is not None and by.valid_from > changes.at:
        raise ChangeRefusedError(
            "valid_from: it has yet to begin; expire the record at that time, and remember the new one"
        )
    writer = Writer(changes, settling, Manner(created="record.remembered", revised="record.revised"))
    writer.load([by])
    successor, _ = writer.write(by)
    if successor.id == row.id:
        raise ChangeRefusedError("text: the record says this already")
    _require_live(successor, changes.at)
    settling.supersede(row, successor.id)
    with changes.changing(successor, "record.prevailed"):
        successor.supersedes = row.id
    return _done(changes, settling, successor)


def contradict(changes: Changes, record_ids: Sequence[str]) -> LifecycleReport:
    """Two records disagree: the stronger holds; where neither can be preferred neither is used any more."""
    one, other = (changes.find(id) for id in record_ids)
    settling = Settling(changes)
    ways = ("record.conflict_flagged", "record.superseded", "record.suspended")
    if _one_gave_way(one, other) and changes.done_before([one.id, other.id], ways):
        return report([one, other], settling.effects, [one.id, other.id])
    if one.id == other.id:
        raise ChangeRefusedError("record_ids: both name the same record")
    for row in (one, other):
        _require_live(row, changes.at)
    claims = claim_of(one), claim_of(other)
    if not overlap(*claims, changes.at):
        raise ChangeRefusedError("record_ids: they hold at different times, so they do not disagree")
    if claims[0].says == claims[1].says:
        raise ChangeRefusedError("record_ids: they say the same")
    holds = prevailing(*claims) if _comparable(one, other) else None
    if holds is None:
        settling.disagree(one, other)
    else:
        winner, loser = (one, other) if holds.id == one.id else (other, one)
        _prevail(changes, settling, winner, loser)
    return _done(changes, settling, one, other)


def correct(changes: Changes, asked: CorrectInput) -> LifecycleReport:
    """The same record in new words. They are said now, and nobody has reviewed them as a standing instruction."""
    row = changes.find(asked.record_id)
    settling = Settling(changes)
    given = {field: value for field in _CORRECTED if (value := getattr(asked, field)) is not None}
    if all(getattr(as_record(row), field) == value for field, value in given.items()):
        return report([row], settling.effects, [row.id] if changes.made_before(row, "record.corrected") else [])
    _require_version(row, asked.expected_version)
    _require_active(row)
    said = _as_corrected(row, given)
    refuse_secrets(
        [("text", said.text), ("attribute", said.attribute or ""), *(("entities", e) for e in said.entities)]
    )
    temporary = row.temporary or asked.valid_until is not None
    hash_ = content_hash(said, temporary)
    for same in changes.rows(col(RecordRow.scope) == row.scope, col(RecordRow.content_hash) == hash_):
        if same.id != row.id:
            raise ChangeRefusedError(
                f"text: record {same.id} says this already and is {same.status}; delete this one, and restore that one "
                "if it does not hold"
            )
    if hash_ != row.content_hash:
        settling.taken_back(row)  # in its old words, about its old attribute
    with changes.changing(row, "record.corrected"):
        if said.text != row.text:
            row.created_at = _after_all_others(changes, settling, row)
        for field, value in given.items():
            setattr(row, field, list(value) if field == "entities" else value)
        row.type, row.category = said.type.value, said.category.value
        if hash_ != row.content_hash:
            row.content_hash, row.temporary = hash_, temporary
            make_conditional(row)
    settling.changed(row)
    return _done(changes, settling, row)


def expire(
    changes: Changes, record_id: str, when: datetime | None = None, *, expected_version: int | None = None
) -> LifecycleReport:
    """The record stops to hold at `when`, exclusive; None: now. It can end earlier than it would, never later."""
    row = changes.find(record_id)
    settling = Settling(changes)
    ends = when or changes.at
    if row.valid_until == ends and changes.made_before(row, "record.expired"):
        return report([row], settling.effects, [row.id])
    _require_version(row, expected_version)
    _require_active(row)
    if row.valid_until is not None and (row.valid_until <= ends if when is None else row.valid_until == ends):
        return report([row], settling.effects, [])
    if row.valid_until is not None and row.valid_until < ends:
        raise ChangeRefusedError(
            f"at: the record ends at {row.valid_until.isoformat()}; correct its valid_until instead"
        )
    if row.valid_from is not None and row.valid_from >= ends:
        raise ChangeRefusedError(
            f"at: the record begins at {row.valid_from.isoformat()}, so it would never hold; delete it instead"
        )
    with changes.changing(row, "record.expired"):
        row.valid_until = ends
    (settling.taken_back if ends <= changes.at else settling.changed)(row)
    return _done(changes, settling, row)


def restore(changes: Changes, record_id: str, *, expected_version: int | None = None) -> LifecycleReport:
    """Undo the expiry, supersession, rejection or deletion that befell the record last."""
    row = changes.find(record_id)
    settling = Settling(changes)
    if row.status in ACTIVE_STATUSES and changes.made_before(row, "record.restored"):
        return report([row], settling.effects, [row.id])
    _require_version(row, expected_version)
    status, valid_until = _before_it_ended(changes, row)
    _require_free(changes, settling, row, valid_until)
    with changes.changing(row, "record.restored"):
        row.status, row.superseded_by, row.valid_until = status, None, valid_until
    settling.changed(row)
    return _done(changes, settling, row)


def delete(changes: Changes, record_id: str, *, expected_version: int | None = None) -> LifecycleReport:
    """The record is no memory any more. Its text stays until it is forgotten; no import brings it back."""
    return _take_away(changes, record_id, RecordStatus.DELETED, "record.deleted", expected_version)


def reject(changes: Changes, record_id: str, *, expected_version: int | None = None) -> LifecycleReport:
    """A reviewer found that this must not be used. No import brings it back."""
    return _take_away(changes, record_id, RecordStatus.REJECTED, "record.rejected", expected_version)


def set_activation(
    changes: Changes,
    record_id: str,
    activation: Activation,
    *,
    event: str = "record.activation_changed",
    expected_version: int | None = None,
) -> LifecycleReport:
    """Make the record ambient, or conditional again.

    Raises:
        NotEligibleError: it may not become ambient.
    """
    row = changes.find(record_id)
    settling = Settling(changes)
    if row.activation == activation:
        return report([row], settling.effects, [row.id] if changes.made_before(row, event) else [])
    _require_version(row, expected_version)
    if activation is Activation.AMBIENT:
        require_promotable(as_record(row), changes.at)
    with changes.changing(row, event):
        row.activation = activation.value
    return _done(changes, settling, row)


_CORRECTED = ("text", "type", "attribute", "category", "entities", "valid_from", "valid_until")
_WRITTEN = (
    "type",
    "scope",
    "subject",
    "attribute",
    "text",
    "category",
    "entities",
    "valid_from",
    "valid_until",
    "event_at",
)


def _done(changes: Changes, settling: Settling, *rows: RecordRow) -> LifecycleReport:
    effects: Effects = settling.run()
    changes.close()
    return report(rows, effects, changes.touched)


def _take_away(
    changes: Changes, record_id: str, status: RecordStatus, event: str, expected_version: int | None
) -> LifecycleReport:
    row = changes.find(record_id)
    settling = Settling(changes)
    if row.status == status:
        return report([row], settling.effects, [row.id] if changes.made_before(row, event) else [])
    _require_version(row, expected_version)
    with changes.changing(row, event):
        row.status = status.value
        row.suspended_by = row.suspended_from = row.suspended_until = None
        make_conditional(row)
    settling.taken_back(row)
    return _done(changes, settling, row)


def _prevail(changes: Changes, settling: Settling, winner: RecordRow, loser: RecordRow) -> None:
    if winner.temporary or (winner.valid_from is not None and winner.valid_from > changes.at):
        settling.suspend(loser, winner)
        return
    settling.supersede(loser, winner.id)
    with changes.changing(winner, "record.prevailed"):
        winner.supersedes = loser.id


def _comparable(one: RecordRow, other: RecordRow) -> bool:
    """A stronger source holds whatever it is about; the later of two equals only if both fill the same attribute."""
    return one.source != other.source or (slot_of(one) is not None and slot_of(one) == slot_of(other))


def _as_corrected(row: RecordRow, given: dict[str, Any]) -> RecordWrite:
    try:
        return RecordWrite(**{**{field: getattr(row, field) for field in _WRITTEN}, **given})
    except ValidationError as error:
        raise ChangeRefusedError(refusal_text(error).removeprefix("request: ")) from None


def _one_gave_way(one: RecordRow, other: RecordRow) -> bool:
    return any(
        giving.superseded_by == holding.id or giving.suspended_by == holding.id or holding.id in giving.conflicts_with
        for giving, holding in ((one, other), (other, one))
    )


def _after_all_others(changes: Changes, settling: Settling, row: RecordRow) -> datetime:
    slot = slot_of(row)
    others = [] if slot is None else settling.members([slot])[slot]
    said = [stated_at(other.event_at, other.created_at) for other in others if other.id != row.id]
    return max([changes.at, *(time + _TICK for time in said)])


def _before_it_ended(changes: Changes, row: RecordRow) -> tuple[str, datetime | None]:
    """The status and the end the record had before the change that is to be undone."""
    if row.status in ACTIVE_STATUSES:
        expired = _last_state(changes, row, lambda event: event.event == "record.expired")
        if row.valid_until is None or expired is None or expired[1].get("valid_until") != row.valid_until.isoformat():
            raise ChangeRefusedError(
                f"record {row.id} is {row.status} and was not expired: there is nothing to undo; to give it another "
                "end, correct its valid_until"
            )
        ended = expired[0].get("valid_until")
        return row.status, None if ended is None else datetime.fromisoformat(ended)
    active = _last_state(changes, row, lambda event: (event.before or {}).get("status") in list(ACTIVE_STATUSES))
    fallback = RecordStatus.PROVISIONAL if row.source == Source.MODEL else RecordStatus.CONFIRMED
    return (fallback.value if active is None else str(active[0]["status"])), row.valid_until


def _last_state(changes: Changes, row: RecordRow, wanted: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    events = changes.session.scalars(
        select(AuditRow)
        .where(
            col(AuditRow.subject_kind) == "record",
            col(AuditRow.subject_id) == row.id,
            col(AuditRow.tenant) == row.tenant,
            col(AuditRow.user_id) == row.user_id,
        )
        .order_by(col(AuditRow.id).desc())
    )
    found = next((event for event in events if wanted(event)), None)
    return None if found is None else (found.before or {}, found.after or {})


def _require_free(changes: Changes, settling: Settling, row: RecordRow, valid_until: datetime | None) -> None:
    """Nothing that holds now would have to give way to the record, or it to that."""
    slot = slot_of(row)
    members = [] if slot is None else [other for other in settling.members([slot])[slot] if other.id != row.id]
    returning = Claim(**{**vars(claim_of(row)), "ends": valid_until})
    settled = settle([returning, *(claim_of(other) for other in members)], changes.at)
    beside = settled[row.id]
    in_its_way = [
        *([] if beside.superseded_by is None else [beside.superseded_by]),
        *beside.conflicts_with,
        *(other.id for other in members if settled[other.id].superseded_by == row.id),
    ]
    if row.superseded_by is not None:
        in_its_way += [
            other.id for other in changes.rows(col(RecordRow.id) == row.superseded_by) if _lives(other, changes)
        ]
    if in_its_way:
        raise ChangeRefusedError(
            f"record {in_its_way[0]} holds instead of {row.id} now: supersede, expire or delete that one first"
        )


def _lives(row: RecordRow, changes: Changes) -> bool:
    return row.status in ACTIVE_STATUSES and (row.valid_until is None or row.valid_until > changes.at)


def _require_version(row: RecordRow, expected: int | None) -> None:
    if expected is not None and row.version != expected:
        raise StaleRecordVersionError(
            f"record {row.id} is at version {row.version}, not {expected}: read it again, and decide again"
        )


def _require_active(row: RecordRow) -> None:
    if row.status not in ACTIVE_STATUSES:
        raise ChangeRefusedError(f"record {row.id} is {row.status}; restore it first")


def _require_live(row: RecordRow, at: datetime) -> None:
    _require_active(row)
    if row.valid_until is not None and row.valid_until <= at:
        raise ChangeRefusedError(f"record {row.id} ended at {row.valid_until.isoformat()}; restore or correct it first")
