"""`retold records` and `retold sessions`: what an operator changes, each with a name and a reason in the audit log.

Changes go through the same durable operations as a host's (`host.records`).
"""

from __future__ import annotations

import asyncio
import getpass
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import uuid4

import typer
from pydantic import TypeAdapter, ValidationError

from retold.cli import options
from retold.cli.output import readable
from retold.cli.records_output import render_report
from retold.cli.records_reading import RecordIdArgument, ask
from retold.cli.running_stack import RunningStack, Whereabouts, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client import OperationRefusedError
from retold.contracts import names
from retold.contracts._base import Contract, UtcTime
from retold.contracts.identity import operation_workflow_id
from retold.contracts.lifecycle import (
    ContradictInput,
    CorrectInput,
    ExpireInput,
    LifecycleReport,
    RecordChange,
    RecordOperation,
    RememberInput,
    RestoreInput,
    SupersedeInput,
)
from retold.contracts.operations import DeleteRecordInput, DevelopmentAmbientInput, EndSessionInput
from retold.contracts.record import RecordRef, RecordType, RecordWrite, RetrievalCategory, Source
from retold.contracts.refusal import refusal_text

Statement = Annotated[str, typer.Argument(metavar="TEXT", help="What is to be remembered, in one sentence.")]
Seen = Annotated[
    int | None,
    typer.Option("--expected-version", min=1, help="Refuse if the record has another version: somebody was faster."),
]
Attribute = Annotated[
    str | None,
    typer.Option(help="What the statement gives a value of, one at a time (home_city). None for what holds many."),
]
Category = Annotated[RetrievalCategory | None, typer.Option(help="The label the gap planner may see.")]
Type = Annotated[RecordType | None, typer.Option("--type", help="What kind of memory it is.")]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="Holds from then on, inclusive. With a zone.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Holds until then, exclusive. With a zone.")]
Key = Annotated[str | None, typer.Option("--key", help="Your own key of it: the same key again revises the record.")]
Subject = Annotated[str, typer.Option(help="Whom or what it is about; `user` is the principal.")]
Scope = Annotated[str, typer.Option(help="The audience it belongs to.")]

ResultT = TypeVar("ResultT")
OperationT = TypeVar("OperationT", bound=Contract)


def remember(
    context: typer.Context,
    text: Statement,
    tenant: options.Tenant,
    user: options.User,
    attribute: Attribute = None,
    subject: Subject = "user",
    scope: Scope = "personal",
    type: Type = None,
    category: Category = None,
    valid_from: From = None,
    valid_until: Until = None,
    temporary: Annotated[bool, typer.Option("--temporary", help="Said for a time only, even without an end.")] = False,
    key: Key = None,
    reason: options.Why = "remembered",
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Remember one statement. What it replaces, suspends or contradicts follows from who said it, and when."""
    fields = _given(
        type=type,
        category=category,
        id=key,
        attribute=attribute,
        valid_from=_time("--from", valid_from),
        valid_until=_time("--until", valid_until),
    )
    write = _write({"subject": subject, "scope": scope, "temporary": temporary, **fields}, text)
    asked = _checked(RememberInput, tenant, user, records=(write,), actor=actor or _login(), reason=reason)
    report = _change(context, asked)
    (outcome,) = report.outcomes
    if outcome.disposition == "refused":
        raise OperationRefusedError(f"{outcome.field}: {outcome.message}")
    _show(report, "remembered", as_json)


def supersede(
    context: typer.Context,
    record_id: RecordIdArgument,
    text: Statement,
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    key: Key = None,
    expected_version: Seen = None,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Replace one record by a statement about the same attribute of the same subject."""
    change = _checked(
        RecordChange,
        tenant,
        user,
        record_id=record_id,
        actor=actor or _login(),
        reason=reason,
        expected_version=expected_version,
    )
    _write(_given(id=key), text)

    async def replace(stack: RunningStack) -> LifecycleReport:
        old = await stack.host.records.show(change.principal, record_id)
        about = old.model_dump(include={"scope", "type", "subject", "attribute", "category"})
        by = _write({**about, "id": key}, text)
        return await stack.host.records.change(SupersedeInput(**change.model_dump(), by=by))

    _show(ask(context, replace), "remembered", as_json)


def contradict(
    context: typer.Context,
    one: RecordIdArgument,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The record it disagrees with.")],
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Say that two records disagree. The stronger holds; else neither is used until somebody says which does."""
    asked = _checked(ContradictInput, tenant, user, record_ids=(one, other), actor=actor or _login(), reason=reason)
    report = _change(context, asked)
    _show(report, "settled", as_json)


def correct(
    context: typer.Context,
    record_id: RecordIdArgument,
    text: Statement,
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    attribute: Attribute = None,
    type: Type = None,
    category: Category = None,
    valid_from: From = None,
    valid_until: Until = None,
    expected_version: Seen = None,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """The record was wrong: give it other words. What is not given stays. It is no standing instruction any more."""
    asked = _checked(
        CorrectInput,
        tenant,
        user,
        record_id=record_id,
        text=text,
        type=type,
        category=category,
        attribute=attribute,
        valid_from=_time("--from", valid_from),
        valid_until=_time("--until", valid_until),
        actor=actor or _login(),
        reason=reason,
        expected_version=expected_version,
    )
    report = _change(context, asked)
    _show(report, "corrected", as_json)


def expire(
    context: typer.Context,
    record_id: RecordIdArgument,
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="When it stops to hold, exclusive. Default: now.")
    ] = None,
    expected_version: Seen = None,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """The record stops to hold, now or at a time to come."""
    asked = _checked(
        ExpireInput,
        tenant,
        user,
        record_id=record_id,
        at=_time("--at", at),
        actor=actor or _login(),
        reason=reason,
        expected_version=expected_version,
    )
    report = _change(context, asked)
    _show(report, "expired", as_json)


def restore(
    context: typer.Context,
    record_id: RecordIdArgument,
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    expected_version: Seen = None,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Undo the expiry, supersession, rejection or deletion that befell the record last."""
    asked = _checked(
        RestoreInput,
        tenant,
        user,
        record_id=record_id,
        actor=actor or _login(),
        reason=reason,
        expected_version=expected_version,
    )
    report = _change(context, asked)
    _show(report, "restored", as_json)


def delete_record(
    context: typer.Context,
    record_id: RecordIdArgument,
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    expected_version: Seen = None,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete one record: it is no candidate any more from now on, and no import brings it back. `restore` does."""
    asked = _checked(
        DeleteRecordInput,
        tenant,
        user,
        record_id=record_id,
        actor=actor or _login(),
        reason=reason,
        expected_version=expected_version,
    )
    deleted = ask(
        context,
        lambda stack: stack.host.records.delete(
            asked.principal, record_id, actor=asked.actor, reason=reason, expected_version=expected_version
        ),
    )
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
    marked = asyncio.run(_mark(options.whereabouts(context), change))
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


def _change(context: typer.Context, asked: RecordOperation) -> LifecycleReport:
    return ask(context, lambda stack: stack.host.records.change(asked))


def _write(fields: dict[str, Any], text: str) -> RecordWrite:
    try:
        return RecordWrite(text=text, source=Source.HOST, **fields)
    except ValidationError as error:
        raise OperationRefusedError(refusal_text(error)) from error


def _given(**fields: Any) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _time(option: str, said: str | None) -> datetime | None:
    if said is None:
        return None
    try:
        return _TIME.validate_python(said)
    except ValidationError as error:
        raise OperationRefusedError(f"{option}: {refusal_text(error).removeprefix('request: ')}") from error


_TIME: TypeAdapter[datetime] = TypeAdapter(UtcTime)


def _checked(operation: type[OperationT], tenant: str, user: str, **fields: Any) -> OperationT:
    try:
        return operation.model_validate({"principal": options.principal(tenant, user), **fields})
    except ValidationError as error:
        raise OperationRefusedError(refusal_text(error)) from error


async def _mark(where: Whereabouts, change: DevelopmentAmbientInput) -> RecordRef:
    async with connected(where, read_settings()) as stack:
        operation = operation_workflow_id("operation", change.principal, str(uuid4()))
        return await stack.operate(names.DEVELOPMENT_AMBIENT_WORKFLOW, change, RecordRef, workflow_id=operation)


async def _end(where: Whereabouts, ending: EndSessionInput) -> None:
    async with connected(where, read_settings()) as stack:
        operation = operation_workflow_id("end-session", ending.principal, str(uuid4()))
        await stack.operate(names.END_SESSION_WORKFLOW, ending, type(None), workflow_id=operation)


def _show(report: LifecycleReport, what: str, as_json: bool) -> None:
    if as_json:
        write_json(report)
    else:
        render_report(out(), report, what)


def _report(what: str, record: RecordRef, as_json: bool) -> None:
    if as_json:
        write_json(record)
    else:
        console = out()
        console.print(readable(console, f"{what} {record.id}, now version {record.version}"), markup=False)


def _login() -> str:
    return getpass.getuser()
