"""`retold sessions extract` and `retold records activation`: what a user said, and what became of it."""

from __future__ import annotations

import asyncio
from typing import Annotated
from uuid import uuid4

import typer
from pydantic import ValidationError

from retold.cli import options
from retold.cli.failures import CommandError
from retold.cli.output import readable
from retold.cli.running_stack import Whereabouts, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client import OperationRefusedError
from retold.contracts import names
from retold.contracts.activation import ActivationView
from retold.contracts.extraction import ExtractInput, ExtractReport
from retold.contracts.identity import operation_workflow_id
from retold.contracts.operations import InspectActivation, InspectInput, InspectResult
from retold.contracts.refusal import refusal_text
from retold.contracts.turn import Principal


def extract(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    tenant: options.Tenant,
    user: options.User,
    as_json: options.AsJson = False,
) -> None:
    """Read what the user has said in a session since it was last read, and remember what they said about themselves."""
    try:
        wanted = ExtractInput(principal=options.principal(tenant, user), session_id=session)
    except ValidationError as error:
        raise OperationRefusedError(refusal_text(error)) from error
    report = asyncio.run(_extract(options.whereabouts(context), wanted))
    if as_json:
        write_json(report)
    else:
        console = out()
        for line in _read(report):
            console.print(readable(console, line), markup=False)
    if report.failed is not None:
        raise CommandError(f"the extractor gave nothing usable ({report.failed})", "the session stays due")


def show_activation(
    context: typer.Context,
    record_id: Annotated[str, typer.Argument(metavar="ID", help="The record's id, or the key its host gave it.")],
    tenant: options.Tenant,
    user: options.User,
    as_json: options.AsJson = False,
) -> None:
    """Show why a record is, or is not, always on: its evidence, who proposed what, and what was decided."""
    view = asyncio.run(_view(options.whereabouts(context), options.principal(tenant, user), record_id))
    if as_json:
        write_json(view)
        return
    console = out()
    for label, value in activation_lines(view):
        console.print(readable(console, f"{label:<10} {' '.join(value.split())}"), markup=False)


async def _extract(where: Whereabouts, wanted: ExtractInput) -> ExtractReport:
    async with connected(where, read_settings()) as stack:
        workflow_id = operation_workflow_id("extract", wanted.principal, wanted.session_id)
        return await stack.operate(names.EXTRACTION_WORKFLOW, wanted, ExtractReport, workflow_id=workflow_id)


async def _view(where: Whereabouts, principal: Principal, record_id: str) -> ActivationView:
    try:
        asked = InspectInput(request=InspectActivation(principal=principal, record_id=record_id))
    except ValidationError as error:
        raise OperationRefusedError(refusal_text(error)) from error
    async with connected(where, read_settings()) as stack:
        workflow_id = operation_workflow_id("operation", principal, str(uuid4()))
        found = await stack.operate(names.INSPECT_WORKFLOW, asked, InspectResult, workflow_id=workflow_id)
    if found.activation is None:
        raise CommandError("the worker answered without the record: it runs another version of Retold")
    return found.activation


def _read(report: ExtractReport) -> list[str]:
    lines = [
        f"read {report.turns_read} turns: {report.proposed} statements proposed, {len(report.written)} remembered, "
        f"{report.unchanged} known already, {len(report.refused)} refused"
    ]
    lines += [f"  remembered {ref.id}" for ref in report.written]
    lines += [f"  refused the one numbered {refused.index}: {refused.why}" for refused in report.refused]
    return lines


def activation_lines(view: ActivationView) -> list[tuple[str, str]]:
    """What there is to say about a record's activation, each with its label."""
    lines = [
        ("record", f"{view.record.id}, version {view.record.version}, {view.status.value}"),
        ("says", view.text),
        ("activation", view.activation.value),
        ("category", view.category.value + (f" (attribute {view.attribute})" if view.attribute else "")),
    ]
    if view.outcome is None or view.reason is None or view.decided_at is None:
        return [*lines, ("decided", "not evaluated yet")]
    due = "; changed since, and due again" if view.due else ""
    decided = f"{view.outcome.value}, {view.reason.value.replace('_', ' ')}, {view.decided_at.isoformat()}{due}"
    lines.append(("decided", decided))
    if (proposal := view.proposal) is not None:
        lines.append(
            (
                "proposed",
                f"{proposal.activation_category.value}, {proposal.applicability.value}, confidence "
                f"{proposal.confidence:.2f}{', unsafe' if proposal.unsafe else ''}, by {proposal.policy} "
                f"{proposal.policy_version}",
            )
        )
    if (evidence := view.evidence) is None:
        return [*lines, ("evidence", "none in the user's own words")]
    where = f"session {evidence.session_id}, turn {evidence.turn_id}, {evidence.said_at.isoformat()}"
    return [*lines, ("evidence", f"“{evidence.span}”"), ("found in", f"{where} ({evidence.method.value})")]
