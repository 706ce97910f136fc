"""What the indexer needs of the store: which records changed since the index last followed, and their state now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from retold.contracts.record import MemoryRecord, RecordId


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One change that the index has yet to follow. Written in the transaction that made the change."""

    seq: int
    record_id: RecordId


class OutboxStore(Protocol):
    async def pending_index(self, limit: int) -> Sequence[OutboxEntry]:
        """The oldest entries that are not done, in order of `seq`."""

    async def records_by_id(self, ids: Sequence[RecordId]) -> Mapping[RecordId, MemoryRecord]:
        """The records as they are now, whatever their state. Forgotten ones are left out."""

    async def index_done(self, seqs: Sequence[int]) -> None:
        """Mark entries as followed."""
