"""What a host imports: `async with connect() as host: await host.turn(...)`."""

from retold.client._connection import open_client, plugins, retold_plugin
from retold.client._errors import (
    DraftFailedError,
    HostNotServingError,
    InvalidTurnError,
    OperationRefusedError,
    RetoldError,
    SessionOwnedByAnotherError,
    StaleRecordVersionError,
    TurnCancelledError,
    TurnConflictError,
    TurnDeadlineError,
    UnknownRecordError,
    UnreachableError,
    from_failure,
)
from retold.client._host import FallbackResult, Host, connect
from retold.contracts.turn import Durability, HostGeneration, Principal, TurnResult

__all__ = [
    "DraftFailedError",
    "Durability",
    "FallbackResult",
    "Host",
    "HostGeneration",
    "HostNotServingError",
    "InvalidTurnError",
    "OperationRefusedError",
    "Principal",
    "RetoldError",
    "SessionOwnedByAnotherError",
    "StaleRecordVersionError",
    "TurnCancelledError",
    "TurnConflictError",
    "TurnDeadlineError",
    "TurnResult",
    "UnknownRecordError",
    "UnreachableError",
    "connect",
    "from_failure",
    "open_client",
    "plugins",
    "retold_plugin",
]
