"""What an SRE runs before workers start: the schema, Temporal's namespace, the configuration looked at, codec keys."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from temporalio.api.common.v1 import Header, Payload, WorkflowExecution
from temporalio.api.history.v1 import History
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetWorkflowExecutionHistoryRequest,
    RegisterNamespaceRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from retold.cli import options
from retold.cli.failures import CommandError
from retold.cli.running_stack import RunningStack, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client._search_attributes import register_review_attributes
from retold.client.encryption import ENCODING, payloads_in, used_keys
from retold.security import Severity, findings

SDK_MARKERS = "core_"
NAMESPACE_APPEARS_WITHIN_S = 30

RetentionDays = Annotated[
    int, typer.Option("--retention-days", min=1, max=90, help="How long ended turns and reviews stay in Temporal.")
]


def migrate_store(as_json: options.AsJson = False) -> None:
    """Bring the store's schema to this version. Safe to repeat, and for several at once; it only adds."""
    # Here and not above: the store takes a second to import, and most commands do without.
    from retold.store.engine import open_engine
    from retold.store.migrations import migrate, revision_of

    settings = read_settings()
    if settings.store_url is None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    engine = open_engine(settings.sql_url)
    try:
        before = revision_of(engine)
        asyncio.run(migrate(engine))
        after = revision_of(engine)
    finally:
        engine.dispose()
    if as_json:
        write_json({"before": before, "after": after})
    else:
        out().print(f"the schema is at {after}" if before == after else f"the schema went from {before} to {after}")


def set_up_temporal(context: typer.Context, retention_days: RetentionDays = 3) -> None:
    """Make the namespace, with its retention, and the search attributes of reviews. Safe to repeat."""
    asyncio.run(_set_up_temporal(context, timedelta(days=retention_days)))


def check_temporal(context: typer.Context) -> None:
    """Say whether the namespace is there and what it keeps; change nothing."""
    asyncio.run(_check_temporal(context))


def check_config(as_json: options.AsJson = False) -> None:
    """Read every setting, say what is half-configured or open, and print what is in force. Exit code 1: refused."""
    settings = read_settings()
    found = findings(settings)
    in_force = settings.model_dump(mode="json", exclude_defaults=True)  # secrets dump as asterisks
    if as_json:
        write_json({"findings": [each.model_dump(mode="json") for each in found], "settings": in_force})
    else:
        for each in found:
            out().print(f"{each.severity.value:8} {each.setting}: {each.message}", markup=False)
        out().print("settings that differ from their defaults:" if in_force else "every setting has its default")
        if in_force:
            out().print_json(json.dumps(in_force))
    if any(each.severity is Severity.REFUSED for each in found):
        raise typer.Exit(1)


def new_codec_key() -> None:
    """Print a fresh key for RETOLD_CODEC_KEYS: second in every list first, then first (the runbook says why)."""
    key_id = f"k{datetime.now(UTC):%Y%m%d%H%M%S}"
    out().print_json(json.dumps({"id": key_id, "key": base64.b64encode(secrets.token_bytes(32)).decode()}))


def codec_keys_in_use(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Most executions to look into.")] = 1_000,
    as_json: options.AsJson = False,
) -> None:
    """Which codec keys the kept histories need, oldest executions first: a key that is not here may go."""
    asyncio.run(_keys_in_use(context, limit, as_json))


async def _set_up_temporal(context: typer.Context, retention: timedelta) -> None:
    async with connected(options.whereabouts(context), read_settings()) as stack:
        kept = Duration()
        kept.FromTimedelta(retention)
        try:
            await stack.client.workflow_service.register_namespace(
                RegisterNamespaceRequest(namespace=stack.client.namespace, workflow_execution_retention_period=kept)
            )
            out().print(f"namespace {stack.client.namespace} made, keeps ended executions {retention.days} days")
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise CommandError(f"namespace {stack.client.namespace} cannot be made", error.message) from error
            out().print(f"namespace {stack.client.namespace} is there")
        await _appears(stack)
        await register_review_attributes(stack.client)
        out().print("search attributes of reviews are there")


async def _appears(stack: RunningStack) -> None:
    """A new namespace is known to every part of the server a few seconds after it was made."""
    try:
        async with asyncio.timeout(NAMESPACE_APPEARS_WITHIN_S):
            while True:
                try:
                    await stack.client.count_workflows()
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
                    await asyncio.sleep(0.5)
                else:
                    return
    except TimeoutError as error:
        raise CommandError(f"namespace {stack.client.namespace} did not appear", "is the server healthy?") from error


async def _check_temporal(context: typer.Context) -> None:
    async with connected(options.whereabouts(context), read_settings()) as stack:
        namespace = stack.client.namespace
        try:
            found = await stack.client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=namespace)
            )
        except RPCError as error:
            raise CommandError(f"namespace {namespace} is not there", "`retold temporal set-up` makes it") from error
        days = found.config.workflow_execution_retention_ttl.ToTimedelta().days
        out().print(f"namespace {namespace} is there and keeps ended executions {days} days")


async def _keys_in_use(context: typer.Context, limit: int, as_json: bool) -> None:
    async with connected(options.whereabouts(context), read_settings()) as stack:
        executions, needing = 0, Counter[str]()
        async for payloads in _payloads_of_executions(stack.client, limit):
            executions += 1
            needing.update(used_keys(payloads))
            if any(payload.metadata.get("encoding") != ENCODING for payload in payloads):
                needing["(none: in the clear)"] += 1
    if as_json:
        write_json({"executions": executions, "needing": dict(needing)})
        return
    out().print(f"{executions} executions looked into")
    for key_id, count in sorted(needing.items()):
        out().print(f"  {key_id}: {count} need it", markup=False)


async def _payloads_of_executions(client: Client, limit: int) -> AsyncIterator[list[Payload]]:
    """The payloads of each execution's history, as Temporal keeps them; oldest executions first."""
    found = [each async for each in client.list_workflows(limit=limit)]
    for execution in sorted(found, key=lambda each: each.start_time):
        request = GetWorkflowExecutionHistoryRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=execution.id, run_id=execution.run_id),
        )
        kept: list[Payload] = []
        while True:
            try:
                page = await client.workflow_service.get_workflow_execution_history(request)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:  # its retention ended, or it was forgotten meanwhile
                    break
                raise
            kept.extend(payloads_of_ours(page.history))
            if not page.next_page_token:
                yield kept
                break
            request.next_page_token = page.next_page_token


def payloads_of_ours(history: History) -> Iterator[Payload]:
    """Without those no codec ever sees, which would have every execution look as if it were in the clear: trace
    context in headers, and the SDK's own notes about a local activity beside its result.
    """
    for event in history.events:
        _clear_headers(event)
        marker = event.marker_recorded_event_attributes
        if marker.marker_name.startswith(SDK_MARKERS):
            for name in set(marker.details) - {"result"}:
                del marker.details[name]
        yield from payloads_in(event)


def _clear_headers(message: Message) -> None:
    for field, value in message.ListFields():
        if field.message_type is None or field.is_repeated:
            continue
        if field.message_type.full_name == Header.DESCRIPTOR.full_name:
            message.ClearField(field.name)
        else:
            _clear_headers(value)
