"""Asking to forget, and getting the receipt."""

from __future__ import annotations

from pydantic import ValidationError
from temporalio.client import Client

from retold.client._errors import OperationRefusedError
from retold.client._operating import operated
from retold.contracts import names
from retold.contracts.forgetting import ForgetInput, ForgetReceipt
from retold.contracts.identity import forget_workflow_id
from retold.contracts.refusal import refusal_text
from retold.contracts.turn import Principal


def to_forget(principal: Principal, target: dict[str, str], *, actor: str, reason: str) -> ForgetInput:
    """
    Raises:
        OperationRefusedError: a name is blank or out of bounds. Nothing was sent.
    """
    asked = {"principal": principal, "target": target, "actor": actor, "reason": reason}
    try:
        return ForgetInput.model_validate(asked)
    except ValidationError as error:
        raise OperationRefusedError(refusal_text(error)) from error


async def forgotten(client: Client, asked: ForgetInput, *, task_queue: str) -> ForgetReceipt:
    """Start it, or join the one that is under way for the same; its receipt.

    It has no execution timeout: once begun it is finished, whoever still waits for it.
    """
    return await operated(
        client,
        names.FORGET_WORKFLOW,
        asked,
        ForgetReceipt,
        workflow_id=forget_workflow_id(asked.principal, asked.target.what, asked.subject_id),
        task_queue=task_queue,
    )
