"""Writing what is to be remembered: one record a statement, the same again a no-op, bad ones refused by their field.

Used by every way in (remember, supersede, import, extraction), so all of them look at the same things.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import col

from retold.contracts.record import (
    ACTIVE_STATUSES,
    Activation,
    RecordStatus,
    RecordType,
    RecordWrite,
    Source,
)  # fmt: skip
from retold.contracts.secrets import find_secret
from retold.policy.authority import has_slot, stated_at, stronger
from retold.store.changes import Changes, make_conditional
from retold.store.settling import Settling, Slot, slot_of
from retold.store.tables import RecordRow
from retold.store.tombstones import Forgotten

_STATEMENT = ("type", "subject", "attribute", "text", "valid_from", "valid_until", "event_at")
"""What makes two records say the same. Restatements at another time are records of their own."""

_DESCRIPTION = ("category", "entities", "evidence", "source")
"""What a host may say about a statement. Saying nothing (the default) leaves what was found out since as it is."""

_CHUNK = 500
_TICK = timedelta(microseconds=1)


class RefusedWriteError(ValueError):
    """One statement is not written; the message never repeats it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a way in writes."""

    created: str
    revised: str
    """Audit events."""
    status: RecordStatus = RecordStatus.CONFIRMED
    source: Source | None = None
    """Whose statements these are; None: what each of them says."""
    said_now: bool = True
    """A statement without a time is made now, so it may hold again after it was superseded. A copy is no statement."""

    @property
    def ways(self) -> tuple[str, ...]:
        """Events by which a statement of this call is known to be written."""
        return self.created, self.revised, "record.restated", "record.confirmed"


def content_hash(statement: RecordWrite, temporary: bool) -> str:
    """SHA-256 over what the record states, about whom, and when it holds; however its accents are encoded."""
    stated = statement.model_dump(mode="json", include=set(_STATEMENT))
    if temporary and statement.valid_until is None:  # with an end it is temporary anyway
        stated["temporary"] = True
    canonical = json.dumps(stated, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(unicodedata.normalize("NFC", canonical).encode()).hexdigest()


class Writer:
    """Statements of one call. What they disagree with is for the settling, once all are written."""

    def __init__(self, changes: Changes, settling: Settling, manner: Manner) -> None:
        self._changes = changes
        self._settling = settling
        self._manner = manner
        self._by_key: dict[str, RecordRow] = {}
        self._by_content: dict[tuple[str, str], RecordRow] = {}
        self._latest: dict[Slot, datetime] = {}
        self._forgotten = Forgotten(changes.session, changes.principal)

    def load(self, lines: Sequence[RecordWrite]) -> None:
        """Look at everything the lines may meet, before the first is written."""
        for keys in chunks({line.id for line in lines if line.id is not None}):
            self._remember_all(self._changes.rows(col(RecordRow.host_key).in_(keys)))
        for hashes in chunks({content_hash(line, line.temporary) for line in lines}):
            self._remember_all(self._changes.rows(col(RecordRow.content_hash).in_(hashes)))
        slots = {slot for line in lines if (slot := _slot(line)) is not None}
        for rows in self._settling.members(sorted(slots)).values():
            self._remember_all(rows)

    def write(self, line: RecordWrite) -> tuple[RecordRow, bool]:
        """The record that now holds the statement, and whether anything was written.

        Raises:
            RefusedWriteError: it holds a secret, is stored as another record, or was deleted, rejected or forgotten.
        """
        if (forgotten := self._forgotten.why_not_record(line, self._changes.at)) is not None:
            raise RefusedWriteError(*forgotten)
        refuse_secrets(_texts(line))
        hash_ = content_hash(line, line.temporary)
        same_key = self._by_key.get(line.id) if line.id is not None else None
        same_content = self._by_content.get((line.scope, hash_))
        if same_key is not None:
            if same_content not in (None, same_key):
                raise RefusedWriteError("text", "the same statement is already stored as another record of this user")
            return same_key, self._revise(same_key, line, hash_)
        if same_content is None:
            return self._create(line, hash_), True
        if line.id is not None and same_content.host_key is not None:
            raise RefusedWriteError(
                "id", f"the same statement is already stored under the id {same_content.host_key!r}"
            )
        return same_content, self._say_again(same_content, line)

    def _create(self, line: RecordWrite, hash_: str) -> RecordRow:
        row = RecordRow(
            id=self._changes.new_id(),
            tenant=self._changes.principal.tenant,
            user_id=self._changes.principal.user,
            status=self._manner.status.value,
            activation=Activation.CONDITIONAL.value,
            conflicting=False,
            conflicts_with=[],
            temporary=is_temporary(line),
            created_at=self._told_at(line),
            version=1,
            content_hash=hash_,
            host_key=line.id,
            **self._columns(line, ("scope", *_STATEMENT, *_DESCRIPTION)),
        )
        self._changes.create(row, self._manner.created)
        self._written(row)
        return row

    def _revise(self, row: RecordRow, line: RecordWrite, hash_: str) -> bool:
        restated = row.content_hash != hash_ or row.scope != line.scope
        if restated and row.status not in ACTIVE_STATUSES:
            raise RefusedWriteError(
                "id", f"the record under this id is {row.status}; write the new text under another id"
            )
        _refuse_revival(row)
        described = self._columns(line, _DESCRIPTION if restated else _said(line))
        if not restated and all(getattr(row, name) == value for name, value in described.items()):
            return False
        if restated:
            self._settling.taken_back(row)
        with self._changes.changing(row, self._manner.revised):
            self._by_content.pop((row.scope, row.content_hash))
            for name, value in described.items():
                setattr(row, name, value)
            if restated:
                self._restate(row, line, hash_)
        # Now, not at commit: in one flush the insert of a later line would go before this update makes room for it.
        self._changes.session.flush()
        self._written(row)
        return True

    def _restate(self, row: RecordRow, line: RecordWrite, hash_: str) -> None:
        row.created_at = self._told_at(line)
        for name, value in self._columns(line, ("scope", *_STATEMENT)).items():
            setattr(row, name, value)
        row.content_hash = hash_
        row.temporary = is_temporary(line)
        row.status = self._manner.status.value
        make_conditional(row)

    def _say_again(self, row: RecordRow, line: RecordWrite) -> bool:
        """The same statement once more: nothing to write, unless it did not hold any more, or was a proposal only."""
        _refuse_revival(row)
        if line.id is not None:  # stored earlier without a key: from now on the host can revise it by this one
            row.host_key = line.id
            self._by_key[line.id] = row
        if self._holds_again(row, line):
            with self._changes.changing(row, "record.restated"):
                row.status, row.superseded_by = self._manner.status.value, None
                row.valid_until = line.valid_until
                row.created_at = self._told_at(line)
                row.source = stronger(self._source(line), Source(row.source)).value
        elif row.status == RecordStatus.PROVISIONAL and self._manner.status is RecordStatus.CONFIRMED:
            with self._changes.changing(row, "record.confirmed"):
                row.status, row.source = (
                    RecordStatus.CONFIRMED.value,
                    stronger(self._source(line), Source(row.source)).value,
                )
        else:
            return False
        self._written(row)
        return True

    def _holds_again(self, row: RecordRow, line: RecordWrite) -> bool:
        """It was superseded, ended, suspended or contradicted, and is said again after that."""
        ended = row.valid_until if row.valid_until != line.valid_until else None
        aside = slot_of(row) is not None and (row.conflicting or row.suspended_by is not None)
        if not (row.status == RecordStatus.SUPERSEDED or aside or (ended is not None and ended <= self._changes.at)):
            return False
        if line.created_at is not None and line.created_at <= self._changes.at:
            return line.created_at > max(row.created_at, ended or row.created_at)
        return self._manner.said_now and self._changes.at > row.created_at

    def _told_at(self, line: RecordWrite) -> datetime:
        """When it was said, as far as that is known. What is said now is said after everything said before."""
        if line.created_at is not None and line.created_at <= self._changes.at:
            return line.created_at
        slot = _slot(line)
        latest = None if slot is None else self._latest.get(slot)
        return self._changes.at if latest is None or latest < self._changes.at else latest + _TICK

    def _source(self, line: RecordWrite) -> Source:
        return self._manner.source or line.source

    def _columns(self, line: RecordWrite, fields: Iterable[str]) -> dict[str, Any]:
        values = {field: getattr(line, field) for field in fields}
        if "source" in values:
            values["source"] = self._source(line)
        for field in ("type", "category", "source"):
            if field in values:
                values[field] = str(values[field])
        for field in ("entities", "evidence"):
            if field in values:
                values[field] = list(values[field])
        return values

    def _written(self, row: RecordRow) -> None:
        self._remember(row)
        self._settling.changed(row)

    def _remember_all(self, rows: Iterable[RecordRow]) -> None:
        for row in rows:
            self._remember(row)

    def _remember(self, row: RecordRow) -> None:
        self._by_content[row.scope, row.content_hash] = row
        if row.host_key is not None:
            self._by_key[row.host_key] = row
        if (slot := slot_of(row)) is not None and row.status in ACTIVE_STATUSES:
            said = stated_at(row.event_at, row.created_at)
            self._latest[slot] = max(said, self._latest.get(slot, said))


def refuse_secrets(texts: Iterable[tuple[str, str]]) -> None:
    """Refuse the first of these named texts that holds a secret.

    Raises:
        RefusedWriteError: naming the field and the kind of secret, never its value.
    """
    for field, text in texts:
        if (kind := find_secret(text)) is not None:
            raise RefusedWriteError(field, f"seems to hold a secret ({kind}); memory does not store credentials")


def _texts(line: RecordWrite) -> Iterator[tuple[str, str]]:
    yield "text", line.text
    yield "id", line.id or ""
    yield "scope", line.scope
    yield "subject", line.subject
    yield "attribute", line.attribute or ""
    yield from (("entities", entity) for entity in line.entities)
    yield from (("evidence", evidence) for evidence in line.evidence)


def _refuse_revival(row: RecordRow) -> None:
    if row.status in (RecordStatus.DELETED, RecordStatus.REJECTED):
        raise RefusedWriteError(
            "text", f"this statement was {row.status}; writing it again does not bring it back, `restore` does"
        )


def is_temporary(line: RecordWrite) -> bool:
    return line.temporary or line.valid_until is not None


def _slot(line: RecordWrite) -> Slot | None:
    if line.attribute is None or not has_slot(RecordType(line.type), line.attribute):
        return None
    return Slot(line.scope, line.subject, line.attribute)


def _said(line: RecordWrite) -> list[str]:
    # By value, not by `model_fields_set`: a line that crossed a process boundary has every field set.
    return [field for field in _DESCRIPTION if getattr(line, field) != RecordWrite.model_fields[field].default]


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(values)
    for start in range(0, len(ordered), _CHUNK):
        yield ordered[start : start + _CHUNK]
