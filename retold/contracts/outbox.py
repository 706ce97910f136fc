"""A change to a record that the index has yet to follow."""

from __future__ import annotations

from retold.contracts._base import Contract
from retold.contracts.record import RecordId


class OutboxEntry(Contract):
    """Written in the transaction that made the change. A record may have several; `seq` is never reused."""

    seq: int
    record_id: RecordId
