"""What the indexer needs of the store: which records changed since the index last followed, and their state now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from retold.contracts.outbox import OutboxEntry
from retold.contracts.record import MemoryRecord, RecordId


class OutboxStore(Protocol):
    async def pending_index(self, limit: int) -> Sequence[OutboxEntry]:
        """The oldest entries that are not done, in order of `seq`."""

    async def records_by_id(self, ids: Sequence[RecordId]) -> Mapping[RecordId, MemoryRecord]:
        """The records as they are now, whatever their state. Forgotten ones are left out."""

    async def index_done(self, seqs: Sequence[int]) -> None:
        """Mark entries as followed."""
