"""Reading what a workflow was started with, so that whatever it is, it is accepted or refused: never retried for ever.

The converter fails the workflow *task* on an argument it cannot decode, and the server hands that task out again and
again while the caller waits. So workflows take their arguments raw and read them here.
"""

from __future__ import annotations

from typing import TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

with workflow.unsafe.imports_passed_through():
    from pydantic import BaseModel, ValidationError

    from retold.contracts import names
    from retold.contracts.refusal import refusal_text

ContractT = TypeVar("ContractT", bound=BaseModel)


WRONGLY_CALLED: list[type[BaseException]] = [TypeError]
"""What a workflow raises that is started without its argument: it fails at once, like any other refusal."""


class NoKeysError(Exception):
    """This worker was left without keys. The task is handed out again, until one that has them takes it."""


def accepted(contract: type[ContractT], argument: RawValue) -> ContractT:
    """The argument, as its contract.

    Raises:
        ApplicationError: of type `InvalidRequest`, saying which field and why. It never repeats what was sent.
        NoKeysError: it is encrypted, and this worker could not decrypt it. That fails the task and refuses nothing.
    """
    if not isinstance(argument, RawValue):  # the converter goes by types only when their number is right
        raise refusal(f"exactly one argument is taken, a JSON {contract.__name__}")
    if argument.payload.metadata.get("encoding") == names.ENCRYPTED_ENCODING:
        raise NoKeysError("the argument is encrypted and this worker has no codec keys: set RETOLD_CODEC_KEYS")
    try:
        return contract.model_validate_json(argument.payload.data)
    except ValidationError as error:
        raise refusal(refusal_text(error)) from None  # its cause would hold the text that was sent
    except (ValueError, RecursionError):
        raise refusal(f"the argument is not a JSON {contract.__name__}") from None


def refusal(why: str) -> ApplicationError:
    return ApplicationError(
        why, type=names.INVALID_REQUEST, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )
