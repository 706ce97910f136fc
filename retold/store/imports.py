"""Importing what a host already knows: records and past turns, one transaction a call, the same again a no-op.

An import cannot make anything ambient and brings nothing back that was deleted or rejected: a line that would is
refused and says so. Its records meet the others by the rules every other way of writing follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlmodel import col, select

from retold.contracts.identity import turn_ref
from retold.contracts.importing import ImportReport, RefusedLine
from retold.contracts.record import RecordWrite, TranscriptWrite
from retold.policy.ports import SessionOwnedByAnotherError
from retold.store import sessions
from retold.store.changes import Changes
from retold.store.settling import Settling
from retold.store.tables import SessionTurnRow
from retold.store.tombstones import Forgotten
from retold.store.writing import Manner, RefusedWriteError, Writer, chunks, refuse_secrets

IMPORTED = Manner(created="record.imported", revised="record.revised_by_import", said_now=False)


class Importer:
    """One import call inside one transaction."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._settling = Settling(changes)
        self._records = Writer(changes, self._settling, IMPORTED)
        self._turns: dict[str, str] = {}
        self._turns_by_session: dict[str, int] = {}
        self._forgotten = Forgotten(changes.session, changes.principal)

    def write(self, lines: Sequence[RecordWrite | TranscriptWrite]) -> ImportReport:
        self._records.load([line for line in lines if isinstance(line, RecordWrite)])
        self._load_turns([line for line in lines if isinstance(line, TranscriptWrite)])
        written = 0
        unchanged_turns = 0
        unchanged: list[str] = []
        refused: list[RefusedLine] = []
        for index, line in enumerate(lines):
            try:
                if isinstance(line, TranscriptWrite):
                    unchanged_turns += not self._turn(line)
                    continue
                row, new = self._records.write(line)
                written += new
                if not new:
                    unchanged.append(row.id)
            except RefusedWriteError as error:
                refused.append(RefusedLine(index=index, field=error.field, message=str(error)))
        self._settling.run()
        for session_id, turns in self._turns_by_session.items():
            self._changes.note("session.turns_imported", ("session", session_id), after={"turns": turns})
        again = self._changes.done_before(unchanged, IMPORTED.ways) if unchanged else set()
        self._changes.close()
        return ImportReport(
            written=written,
            unchanged=unchanged_turns + len(unchanged),
            turns_written=sum(self._turns_by_session.values()),
            refused=tuple(refused),
            # What this very call had written before its worker died is due for evaluation too.
            changed=(*self._changes.touched, *sorted(again)),
        )

    def _turn(self, line: TranscriptWrite) -> bool:
        if (forgotten := self._forgotten.why_not_turn(line, self._changes.at)) is not None:
            raise RefusedWriteError(*forgotten)
        refuse_secrets([("text", line.text)])
        principal = self._changes.principal
        ref = turn_ref(principal, line.session_id, line.turn_id, line.role)
        if (stored := self._turns.get(ref)) is not None:
            if stored != line.text:
                raise RefusedWriteError("text", f"this turn's {line.role} text is already stored and differs")
            return False
        try:
            sessions.note_turn(self._changes.session, principal, line.session_id, line.at)
        except SessionOwnedByAnotherError as error:
            raise RefusedWriteError("session_id", str(error)) from error
        sessions.put_turn(
            self._changes.session, principal, line.session_id, line.turn_id, {line.role: line.text}, line.at
        )
        self._turns[ref] = line.text
        self._turns_by_session[line.session_id] = self._turns_by_session.get(line.session_id, 0) + 1
        return True

    def _load_turns(self, turns: Sequence[TranscriptWrite]) -> None:
        principal = self._changes.principal
        for refs in chunks({turn_ref(principal, turn.session_id, turn.turn_id, turn.role) for turn in turns}):
            rows = self._changes.session.execute(
                select(SessionTurnRow.id, SessionTurnRow.text).where(col(SessionTurnRow.id).in_(refs))
            )
            self._turns.update({id: text for id, text in rows})
