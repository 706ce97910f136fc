"""What a host imports: `async with connect() as host: await host.turn(...)`."""

from retold.client._connection import open_client, plugins, retold_plugin
from retold.client._errors import (
    DraftFailedError,
    InvalidTurnError,
    OperationRefusedError,
    RetoldError,
    SessionOwnedByAnotherError,
    TurnCancelledError,
    TurnConflictError,
    TurnDeadlineError,
    UnreachableError,
    from_failure,
)
from retold.client._host import FallbackResult, Host, connect
from retold.contracts.turn import Durability, Principal, TurnResult

__all__ = [
    "DraftFailedError",
    "Durability",
    "FallbackResult",
    "Host",
    "InvalidTurnError",
    "OperationRefusedError",
    "Principal",
    "RetoldError",
    "SessionOwnedByAnotherError",
    "TurnCancelledError",
    "TurnConflictError",
    "TurnDeadlineError",
    "TurnResult",
    "UnreachableError",
    "connect",
    "from_failure",
    "open_client",
    "plugins",
    "retold_plugin",
]
