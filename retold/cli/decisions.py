"""`retold decisions`: what became of turns, why, and whether the record still says so when it is replayed."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from retold.cli import options
from retold.cli.output import render_decision_list, render_searches, render_turn
from retold.cli.running_stack import Whereabouts, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client import InvalidTurnError
from retold.contracts.decision import TurnDecision
from retold.contracts.disposition import Disposition
from retold.contracts.operations import DecisionFilter, DecisionView
from retold.contracts.refusal import refusal_text

DecisionId = Annotated[str, typer.Argument(metavar="ID", help="The decision's id, from `turn` or `decisions list`.")]


def list_decisions(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this session's.")] = None,
    disposition: Annotated[Disposition | None, typer.Option(help="Only turns that ended like this.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="At most this many.")] = 20,
    as_json: options.AsJson = False,
) -> None:
    """List decisions, the newest first."""
    try:
        wanted = DecisionFilter(tenant=tenant, user=user, session_id=session, disposition=disposition, limit=limit)
    except ValidationError as error:
        raise InvalidTurnError(refusal_text(error)) from error
    found = asyncio.run(_list(options.whereabouts(context), wanted))
    if as_json:
        write_json(found)
    else:
        render_decision_list(out(), found)


def show_decision(context: typer.Context, decision_id: DecisionId, as_json: options.AsJson = False) -> None:
    """Show one turn whole: what was missing, found, admitted, answered, and how long each stage took."""
    view = asyncio.run(_view(options.whereabouts(context), decision_id))
    if as_json:
        write_json(view)
    else:
        show_view(out(), view)


def replay_decision(context: typer.Context, decision_id: DecisionId, as_json: options.AsJson = False) -> None:
    """Decide the turn once more from its stored stage outcomes; exit code 1 if it ends differently."""
    view = asyncio.run(_view(options.whereabouts(context), decision_id))
    decision = view.decision
    stored = f"{decision.disposition.value} / {decision.reason.value}"
    replayed = f"{view.replayed_disposition.value} / {view.replayed_reason.value}"
    if as_json:
        write_json(
            {
                "decision_id": decision.decision_id,
                "stored": {"disposition": decision.disposition, "reason": decision.reason},
                "replayed": {"disposition": view.replayed_disposition, "reason": view.replayed_reason},
                "same": stored == replayed,
            }
        )
    else:
        console = out()
        console.print(f"stored    {stored}")
        console.print(f"replayed  {replayed}")
        console.print("same" if stored == replayed else "DIFFERENT: the row was altered, or another version wrote it")
    if stored != replayed:
        raise typer.Exit(1)


def show_view(console: Console, view: DecisionView) -> None:
    """One decision with everything that is still stored of its turn."""
    decision, said = view.decision, view.said
    answered = decision.disposition not in (Disposition.FAILED, Disposition.CANCELLED)
    draft = said.get("draft")
    render_turn(
        console,
        decision,
        user_text=said.get("user"),
        answer=(said.get("final") if decision.final_turn_ref is not None else draft) if answered else None,
        draft=draft,
        texts=view.record_texts,
    )
    render_searches(console, view.searches)


async def _list(where: Whereabouts, wanted: DecisionFilter) -> tuple[TurnDecision, ...]:
    async with connected(where, read_settings()) as stack:
        return await stack.decisions(wanted)


async def _view(where: Whereabouts, decision_id: str) -> DecisionView:
    async with connected(where, read_settings()) as stack:
        return await stack.decision(decision_id)
