"""`retold records list|show|history`: what is remembered about a user, asked of a running stack."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from retold.cli import options
from retold.cli.records_output import render_events, render_record, render_records
from retold.cli.running_stack import RunningStack, Whereabouts, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.contracts.record import RecordStatus

RecordIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The record's id, or the key its host gave it.")]

ResultT = TypeVar("ResultT")


def list_records(
    context: typer.Context,
    tenant: options.Tenant,
    user: options.User,
    status: Annotated[list[RecordStatus] | None, typer.Option(help="In this state; repeat it. Default: any.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only about this subject.")] = None,
    attribute: Annotated[str | None, typer.Option(help="Only of this attribute.")] = None,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Only what comes after this record.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 50,
    as_json: options.AsJson = False,
) -> None:
    """What is remembered about a user, oldest first."""
    principal = options.principal(tenant, user)
    page = ask(
        context,
        lambda stack: stack.host.records.list(
            principal, statuses=status or None, subject=subject, attribute=attribute, after=after, limit=limit
        ),
    )
    if as_json:
        write_json(page)
    else:
        render_records(out(), page)


def show_record(
    context: typer.Context,
    record_id: RecordIdArgument,
    tenant: options.Tenant,
    user: options.User,
    as_json: options.AsJson = False,
) -> None:
    """One record whole: its words, what it is about, and whether it holds."""
    principal = options.principal(tenant, user)
    record = ask(context, lambda stack: stack.host.records.show(principal, record_id))
    if as_json:
        write_json(record)
    else:
        render_record(out(), record)


def show_history(
    context: typer.Context,
    record_id: RecordIdArgument,
    tenant: options.Tenant,
    user: options.User,
    as_json: options.AsJson = False,
) -> None:
    """What befell one record: who, when, from what to what."""
    principal = options.principal(tenant, user)
    events = ask(context, lambda stack: stack.host.records.history(principal, record_id))
    if as_json:
        write_json([event.model_dump(mode="json") for event in events])
    else:
        render_events(out(), events)


def ask(context: typer.Context, what: Callable[[RunningStack], Awaitable[ResultT]]) -> ResultT:
    """What the stack answers, once it is known that somebody is there to answer."""

    async def asked(where: Whereabouts) -> ResultT:
        async with connected(where, read_settings()) as stack:
            await stack.expect_worker(stack.lifecycle_queue)
            return await what(stack)

    return asyncio.run(asked(options.whereabouts(context)))
