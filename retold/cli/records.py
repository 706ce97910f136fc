"""`retold records` and `retold sessions`: what an operator changes, each with a name and a reason in the audit log."""

from __future__ import annotations

import asyncio
import getpass
from typing import Annotated, TypeVar
from uuid import uuid4

import typer
from pydantic import ValidationError

from retold.cli import options
from retold.cli.output import readable
from retold.cli.running_stack import Whereabouts, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client import OperationRefusedError
from retold.contracts import names
from retold.contracts.identity import operation_workflow_id
from retold.contracts.operations import DeleteRecordInput, DevelopmentAmbientInput, EndSessionInput
from retold.contracts.record import RecordRef
from retold.contracts.refusal import refusal_text

RecordIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The record's id, or the key its host gave it.")]
OperationT = TypeVar("OperationT", EndSessionInput, DeleteRecordInput, DevelopmentAmbientInput)


def delete_record(
    context: typer.Context,
    record_id: RecordIdArgument,
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete one record: it is no candidate any more from now on, and no import brings it back."""
    change = _checked(DeleteRecordInput, tenant, user, record_id=record_id, reason=reason, actor=actor or _login())
    deleted = asyncio.run(_change(options.whereabouts(context), names.DELETE_RECORD_WORKFLOW, change))
    _report("deleted", deleted, as_json)


def mark_ambient(
    context: typer.Context,
    record_id: RecordIdArgument,
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """For development only: make a record ambient without review. The audit log says that this was done."""
    change = _checked(
        DevelopmentAmbientInput, tenant, user, record_id=record_id, reason=reason, actor=actor or _login()
    )
    marked = asyncio.run(_change(options.whereabouts(context), names.DEVELOPMENT_AMBIENT_WORKFLOW, change))
    _report("ambient, by a development command and without review:", marked, as_json)


def end_session(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    tenant: options.Tenant,
    user: options.User,
    as_json: options.AsJson = False,
) -> None:
    """End a session: its stored profile is dropped, the user's next session gets a freshly assembled one."""
    ending = _checked(EndSessionInput, tenant, user, session_id=session)
    asyncio.run(_end(options.whereabouts(context), ending))
    if as_json:
        write_json({"session_id": session, "ended": True})
    else:
        console = out()
        console.print(readable(console, f"ended session {session}"), markup=False)


def _checked(operation: type[OperationT], tenant: str, user: str, **fields: str) -> OperationT:
    try:
        return operation(principal=options.principal(tenant, user), **fields)
    except ValidationError as error:
        raise OperationRefusedError(refusal_text(error)) from error


async def _change(where: Whereabouts, workflow: str, change: DeleteRecordInput | DevelopmentAmbientInput) -> RecordRef:
    async with connected(where, read_settings()) as stack:
        lifecycle = None if workflow == names.DEVELOPMENT_AMBIENT_WORKFLOW else stack.lifecycle_queue
        operation = operation_workflow_id("operation", change.principal, str(uuid4()))
        return await stack.operate(workflow, change, RecordRef, workflow_id=operation, queue=lifecycle)


async def _end(where: Whereabouts, ending: EndSessionInput) -> None:
    async with connected(where, read_settings()) as stack:
        operation = operation_workflow_id("end-session", ending.principal, str(uuid4()))
        await stack.operate(names.END_SESSION_WORKFLOW, ending, type(None), workflow_id=operation)


def _report(what: str, record: RecordRef, as_json: bool) -> None:
    if as_json:
        write_json(record)
    else:
        console = out()
        console.print(readable(console, f"{what} {record.id}, now version {record.version}"), markup=False)


def _login() -> str:
    return getpass.getuser()
