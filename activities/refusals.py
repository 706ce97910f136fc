"""What the store refuses, as a failure nobody retries: a refusal will not become right by repetition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from retold.contracts import names
from retold.policy.ports import SessionOwnedByAnotherError
from retold.store.amending import StaleRecordVersionError
from retold.store.store import NotEligibleError, RecordNotFoundError, SessionNotOpenError
from retold.store.writing import RefusedWriteError


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the store refuses into its typed failure; everything else passes, and is retried."""
    try:
        yield
    except RecordNotFoundError as error:
        raise refused(str(error), names.RECORD_NOT_FOUND) from error
    except StaleRecordVersionError as error:
        raise refused(str(error), names.STALE_RECORD_VERSION) from error
    except RefusedWriteError as error:
        raise refused(f"{error.field}: {error}") from error
    except (NotEligibleError, SessionNotOpenError, SessionOwnedByAnotherError, ValueError) as error:
        raise refused(str(error)) from error


def refused(why: str, type: str = names.OPERATION_REFUSED) -> ApplicationError:
    """Benign: the right answer to a wrong question leaves no traceback in the worker's log and raises no alert."""
    return ApplicationError(why, type=type, non_retryable=True, category=ApplicationErrorCategory.BENIGN)
