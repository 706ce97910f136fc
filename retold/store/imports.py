"""Importing what a host already knows: records and past turns, one transaction a call, the same again a no-op.

An import cannot make anything ambient and brings nothing back that was deleted or rejected: a line that would is
refused and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.identity import turn_ref
from retold.contracts.importing import ImportReport, RefusedLine
from retold.contracts.record import ACTIVE_STATUSES, Activation, RecordStatus, RecordWrite, TranscriptWrite
from retold.contracts.turn import Principal
from retold.policy.ports import SessionOwnedByAnotherError
from retold.store import audit, outbox, sessions
from retold.store.records import audited_state, owned_by
from retold.store.secrets import find_secret
from retold.store.tables import RecordRow, SessionTurnRow

_STATEMENT = ("type", "subject", "attribute", "text", "valid_from", "valid_until", "event_at")
"""What makes two records say the same. Restatements at another time are records of their own."""

_DESCRIPTION = ("category", "entities", "evidence", "source")
"""What a host may say about a statement. Saying nothing (the default) leaves what was found out since as it is."""

_CHUNK = 500


class _RefusedError(Exception):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def content_hash(line: RecordWrite) -> str:
    """SHA-256 over what the record states, about whom, and when it holds."""
    statement = line.model_dump(mode="json", include=set(_STATEMENT))
    canonical = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


class Importer:
    """One import call inside one transaction."""

    def __init__(
        self, session: Session, principal: Principal, *, actor: str, at: datetime, new_id: Callable[[], str]
    ) -> None:
        self._session = session
        self._principal = principal
        self._actor = actor
        self._at = at
        self._new_id = new_id
        self._by_key: dict[str, RecordRow] = {}
        self._by_content: dict[tuple[str, str], RecordRow] = {}
        self._turns: dict[str, str] = {}
        self._unchanged = 0
        self._written: list[str] = []
        self._audited: list[dict[str, Any]] = []
        self._turns_by_session: dict[str, int] = {}

    def write(self, lines: Sequence[RecordWrite | TranscriptWrite]) -> ImportReport:
        self._load_stored(lines)
        refused: list[RefusedLine] = []
        for index, line in enumerate(lines):
            try:
                _refuse_secrets(line)
                self._record(line) if isinstance(line, RecordWrite) else self._turn(line)
            except _RefusedError as error:
                refused.append(RefusedLine(index=index, field=error.field, message=str(error)))
        for session_id, turns in self._turns_by_session.items():
            self._audit("session.turns_imported", ("session", session_id), after={"turns": turns})
        outbox.append(self._session, self._written, self._at)
        audit.append(self._session, *self._audited)
        return ImportReport(
            written=len(self._written),
            unchanged=self._unchanged,
            turns_written=sum(self._turns_by_session.values()),
            refused=tuple(refused),
        )

    def _record(self, line: RecordWrite) -> None:
        hash_ = content_hash(line)
        same_key = self._by_key.get(line.id) if line.id is not None else None
        same_content = self._by_content.get((line.scope, hash_))
        if same_key is not None:
            if same_content not in (None, same_key):
                raise _RefusedError("text", "the same statement is already stored as another record of this user")
            self._revise(same_key, line, hash_)
        elif same_content is None:
            self._create(line, hash_)
        elif line.id is not None and same_content.host_key is not None:
            raise _RefusedError("id", f"the same statement is already stored under the id {same_content.host_key!r}")
        else:
            _refuse_revival(same_content)
            if line.id is not None:  # stored earlier without a key: from now on the host can revise it by this one
                same_content.host_key = line.id
                self._by_key[line.id] = same_content
            self._unchanged += 1

    def _create(self, line: RecordWrite, hash_: str) -> None:
        row = RecordRow(
            id=self._new_id(),
            tenant=self._principal.tenant,
            user_id=self._principal.user,
            status=RecordStatus.CONFIRMED.value,
            activation=Activation.CONDITIONAL.value,
            conflicting=False,
            created_at=line.created_at or self._at,
            version=1,
            content_hash=hash_,
            host_key=line.id,
            **_columns(line, ("scope", *_STATEMENT, *_DESCRIPTION)),
        )
        self._session.add(row)
        self._remember(row)
        self._wrote(row, "record.imported", before=None)

    def _revise(self, row: RecordRow, line: RecordWrite, hash_: str) -> None:
        restated = row.content_hash != hash_ or row.scope != line.scope
        if restated and row.status not in ACTIVE_STATUSES:
            raise _RefusedError("id", f"the record under this id is {row.status}; import the new text under another id")
        _refuse_revival(row)
        described = _columns(line, _DESCRIPTION if restated else _said(line))
        if not restated and all(getattr(row, name) == value for name, value in described.items()):
            self._unchanged += 1
            return
        before = audited_state(row)
        self._by_content.pop((row.scope, row.content_hash))
        for name, value in described.items():
            setattr(row, name, value)
        if restated:
            for name, value in _columns(line, ("scope", *_STATEMENT)).items():
                setattr(row, name, value)
            row.content_hash = hash_
            row.created_at = line.created_at or self._at
            row.status = RecordStatus.CONFIRMED.value
            # A standing instruction was reviewed word by word: other words are not one.
            row.activation = Activation.CONDITIONAL.value
        row.version += 1
        # Now, not at commit: in one flush the insert of a later line would go before this update makes room for it.
        self._session.flush()
        self._remember(row)
        self._wrote(row, "record.revised_by_import", before=before)

    def _turn(self, line: TranscriptWrite) -> None:
        ref = turn_ref(self._principal, line.session_id, line.turn_id, line.role)
        if (stored := self._turns.get(ref)) is not None:
            if stored != line.text:
                raise _RefusedError("text", f"this turn's {line.role} text is already stored and differs")
            self._unchanged += 1
            return
        try:
            sessions.note_turn(self._session, self._principal, line.session_id, line.at)
        except SessionOwnedByAnotherError as error:
            raise _RefusedError("session_id", str(error)) from error
        sessions.put_turn(
            self._session, self._principal, line.session_id, line.turn_id, {line.role: line.text}, line.at
        )
        self._turns[ref] = line.text
        self._turns_by_session[line.session_id] = self._turns_by_session.get(line.session_id, 0) + 1

    def _wrote(self, row: RecordRow, event: str, before: dict[str, object] | None) -> None:
        self._written.append(row.id)
        self._audit(event, ("record", row.id), before=before, after=audited_state(row))

    def _audit(
        self,
        event: str,
        subject: tuple[str, str],
        *,
        before: dict[str, object] | None = None,
        after: dict[str, object] | None = None,
    ) -> None:
        self._audited.append(
            audit.row(
                self._principal,
                at=self._at,
                actor=self._actor,
                event=event,
                subject=subject,
                before=before,
                after=after,
                reason="import",
            )
        )

    def _remember(self, row: RecordRow) -> None:
        self._by_content[row.scope, row.content_hash] = row
        if row.host_key is not None:
            self._by_key[row.host_key] = row

    def _load_stored(self, lines: Sequence[RecordWrite | TranscriptWrite]) -> None:
        records = [line for line in lines if isinstance(line, RecordWrite)]
        for keys in _chunks({line.id for line in records if line.id is not None}):
            self._remember_where(col(RecordRow.host_key).in_(keys))
        for hashes in _chunks({content_hash(line) for line in records}):
            self._remember_where(col(RecordRow.content_hash).in_(hashes))
        turns = [line for line in lines if isinstance(line, TranscriptWrite)]
        for refs in _chunks({turn_ref(self._principal, t.session_id, t.turn_id, t.role) for t in turns}):
            rows = self._session.execute(
                select(SessionTurnRow.id, SessionTurnRow.text).where(col(SessionTurnRow.id).in_(refs))
            )
            self._turns.update({id: text for id, text in rows})

    def _remember_where(self, condition: Any) -> None:
        rows = self._session.scalars(select(RecordRow).where(owned_by(self._principal), condition).with_for_update())
        for row in rows:
            self._remember(row)


def _refuse_secrets(line: RecordWrite | TranscriptWrite) -> None:
    for field, text in _texts(line):
        if (kind := find_secret(text)) is not None:
            raise _RefusedError(field, f"seems to hold a secret ({kind}); memory does not store credentials")


def _texts(line: RecordWrite | TranscriptWrite) -> Iterator[tuple[str, str]]:
    yield "text", line.text
    if isinstance(line, RecordWrite):
        yield "id", line.id or ""
        yield "subject", line.subject
        yield "attribute", line.attribute or ""
        yield from (("entities", entity) for entity in line.entities)
        yield from (("evidence", evidence) for evidence in line.evidence)


def _refuse_revival(row: RecordRow) -> None:
    if row.status in (RecordStatus.DELETED, RecordStatus.REJECTED):
        raise _RefusedError("text", f"this statement was {row.status}; an import does not bring it back")


def _said(line: RecordWrite) -> list[str]:
    # By value, not by `model_fields_set`: a line that crossed a process boundary has every field set.
    return [field for field in _DESCRIPTION if getattr(line, field) != RecordWrite.model_fields[field].default]


def _columns(line: RecordWrite, fields: Iterable[str]) -> dict[str, Any]:
    values = {field: getattr(line, field) for field in fields}
    for field in ("type", "category", "source"):
        if field in values:
            values[field] = str(values[field])
    for field in ("entities", "evidence"):
        if field in values:
            values[field] = list(values[field])
    return values


def _chunks(values: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(values)
    for start in range(0, len(ordered), _CHUNK):
        yield ordered[start : start + _CHUNK]
