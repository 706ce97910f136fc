"""What a host imports: `async with connect() as host: await host.turn(...)`."""

from retold.client._connection import open_client, plugins, retold_plugin
from retold.client._errors import (
    DraftFailedError,
    ForgetIncompleteError,
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
from retold.client._operating import operated
from retold.client._records import Records
from retold.client._reviews import (
    AlreadyResolvedError,
    DecisionRefusedError,
    DecisionUnansweredError,
    MalformedDecisionError,
    NotAReviewerError,
    NotPromotableError,
    ReviewNotOpenError,
    Reviews,
    ReviewWithdrawnError,
    StaleReviewError,
    UnknownResolutionError,
    UnknownReviewError,
)
from retold.client._search_attributes import (
    missing_review_attributes,
    prepare_review_attributes,
    register_review_attributes,
)
from retold.contracts.forgetting import ForgetReceipt
from retold.contracts.lifecycle import LifecycleReport, RecordEvent, RecordPage, WriteOutcome
from retold.contracts.record import MemoryRecord, RecordRef, RecordStatus, RecordWrite
from retold.contracts.turn import Durability, HostGeneration, Principal, TurnResult

__all__ = [
    "AlreadyResolvedError",
    "DecisionRefusedError",
    "DecisionUnansweredError",
    "DraftFailedError",
    "Durability",
    "FallbackResult",
    "ForgetIncompleteError",
    "ForgetReceipt",
    "Host",
    "HostGeneration",
    "HostNotServingError",
    "InvalidTurnError",
    "LifecycleReport",
    "MalformedDecisionError",
    "MemoryRecord",
    "NotAReviewerError",
    "NotPromotableError",
    "OperationRefusedError",
    "Principal",
    "RecordEvent",
    "RecordPage",
    "RecordRef",
    "RecordStatus",
    "RecordWrite",
    "Records",
    "RetoldError",
    "ReviewNotOpenError",
    "ReviewWithdrawnError",
    "Reviews",
    "SessionOwnedByAnotherError",
    "StaleRecordVersionError",
    "StaleReviewError",
    "TurnCancelledError",
    "TurnConflictError",
    "TurnDeadlineError",
    "TurnResult",
    "UnknownRecordError",
    "UnknownResolutionError",
    "UnknownReviewError",
    "UnreachableError",
    "WriteOutcome",
    "connect",
    "from_failure",
    "missing_review_attributes",
    "open_client",
    "operated",
    "plugins",
    "prepare_review_attributes",
    "register_review_attributes",
    "retold_plugin",
]
