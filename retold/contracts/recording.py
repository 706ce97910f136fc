"""Recording a turn, now or later."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from retold.contracts._base import Contract, Milliseconds
from retold.contracts.decision import TurnRecord
from retold.contracts.stages import StoredAnswer


class RecordInput(Contract):
    record: TurnRecord
    limit_ms: Milliseconds


class RecordResult(Contract):
    written: bool
    why_not: Annotated[str, Field(max_length=200)] | None = None
    earlier: StoredAnswer | None = None
    """The answer this turn already has on record, from another attempt. It stays, and it is what the host gets:
    the log and the host never know different answers."""
