"""What the indexer needs of the store: which records changed since the index last followed, and their state now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from retold.contracts.outbox import OutboxEntry
from retold.contracts.record import MemoryRecord, RecordId


class OutboxStore(Protocol):
    async def pending_index(self, limit: int, at: datetime | None = None) -> Sequence[OutboxEntry]:
        """The oldest entries that are not done and not set aside beyond `at`, in order of `seq`."""

    async def latest_index_seq(self) -> int:
        """The highest `seq` of entries that are not done; 0 if there is none."""

    async def records_by_id(self, ids: Sequence[RecordId]) -> Mapping[RecordId, MemoryRecord]:
        """The records as they are now, whatever their state. Forgotten ones are left out."""

    async def index_done(self, seqs: Sequence[int]) -> None:
        """Mark entries as followed."""

    async def index_set_aside(self, seqs: Sequence[int], error: str, at: datetime) -> None:
        """Keep entries the index cannot take for later, ever more rarely."""

    async def take_index_lease(self, holder: str, at: datetime, lasting: timedelta) -> bool:
        """Whether `holder` alone may drain until `at + lasting`."""

    async def give_back_index_lease(self, holder: str) -> None:
        """Let the next one drain at once."""
