"""`retold turn`: one user turn, as a host would send it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Literal
from uuid import uuid4

import typer
from pydantic import TypeAdapter, ValidationError

from retold.cli import options
from retold.cli.decisions import show_view
from retold.cli.failures import CommandError
from retold.cli.output import readable
from retold.cli.reasons import explain
from retold.cli.running_stack import Whereabouts, connected, read_settings
from retold.cli.terminal import complain, err, out, write_json, write_text
from retold.client import Durability, FallbackResult, InvalidTurnError, RetoldError, TurnResult
from retold.client.tracing import install_tracing
from retold.contracts.operations import DecisionView
from retold.contracts.refusal import refusal_text
from retold.contracts.turn import BUDGET_DEFAULT, RequestedBudget, TurnOptions, TurnRequest
from retold.telemetry.span_file import kept_in

RECORDED_WITHIN_S = 5
"""How long `--explain` waits for a decision that is still being recorded."""

_BUDGET: TypeAdapter[int | Literal["default"] | None] = TypeAdapter(RequestedBudget)


def budget(value: str) -> str:
    """Refuse as wrong usage what is no budget."""
    _budget_ms(value)
    return value


def turn(
    context: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the user says.")],
    tenant: options.Tenant,
    user: options.User,
    session: options.Session,
    turn_id: Annotated[
        str | None,
        typer.Option("--turn", help="Names the turn: sent again, it gets the first answer. Default: a new name."),
    ] = None,
    public_context: Annotated[str | None, typer.Option("--context", help="What the model may see anyway.")] = None,
    budget_ms: Annotated[
        str,
        typer.Option(
            "--budget-ms",
            metavar="N|none|default",
            callback=budget,
            help="Milliseconds memory may add once the draft is there. 0: the draft alone. none: stage limits only.",
        ),
    ] = BUDGET_DEFAULT,
    durability: Annotated[
        Durability, typer.Option(help="What survives a worker's death: the turn as a whole, or each finished stage.")
    ] = Durability.AUTO,
    explained: Annotated[bool, typer.Option("--explain", help="Show what led to the answer.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Send one user turn and print its answer."""
    try:
        request = TurnRequest(
            principal=options.principal(tenant, user),
            session_id=session,
            turn_id=turn_id if turn_id is not None else str(uuid4()),
            text=text,
            public_context=public_context,
            options=TurnOptions(latency_budget_ms=_budget_ms(budget_ms), durability=durability),
        )
    except ValidationError as error:
        raise InvalidTurnError(refusal_text(error)) from error
    with _traced():
        answered = asyncio.run(_send(options.whereabouts(context), request, explained))
    result, view = answered.result, answered.explanation
    if as_json:
        write_json({"session_id": session, "turn_id": request.turn_id, "result": result, "explanation": view})
    elif view is not None:
        show_view(out(), view)
    else:
        write_text(result.answer)
        _say_what_became_of_it(result)
    if answered.unexplained is not None:
        complain(answered.unexplained)
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Answered:
    result: TurnResult
    explanation: DecisionView | None = None
    unexplained: str | None = None
    """Why there is no explanation although one was asked for. The answer is shown all the same."""


async def _send(where: Whereabouts, request: TurnRequest, explained: bool) -> _Answered:
    async with connected(where, read_settings()) as stack:
        await stack.expect_worker(stack.turns_queue)
        result = await stack.host.send(request)
        if isinstance(result, FallbackResult):
            raise CommandError(f"Temporal is out of reach ({result.why})")
        if not explained:
            return _Answered(result)
        try:
            if not result.recorded:
                await stack.recorded(result.decision_id, RECORDED_WITHIN_S)
            return _Answered(result, await stack.decision(result.decision_id))
        except RetoldError as error:
            return _Answered(result, unexplained=f"answered, but not explained: {error}")


def _traced() -> AbstractContextManager[None]:
    """The turn's trace begins in this process; it is kept beside the worker's part of it, if that is kept here."""
    data_dir = read_settings().data_dir
    return install_tracing("retold-cli", processors=[kept_in(data_dir, guest=True)] if data_dir.is_dir() else [])


def _say_what_became_of_it(result: TurnResult) -> None:
    console = err()
    stages = (f"{stage.replace('_', ' ')} {elapsed_ms:,.0f} ms" for stage, elapsed_ms in result.timings_ms.items())
    outcome = f"{result.disposition.value} / {result.reason.value}: {explain(result.disposition, result.reason)}"
    for line in (outcome, ", ".join(stages), f"decision {result.decision_id}"):
        console.print(readable(console, line), style="dim", markup=False, soft_wrap=True)


def _budget_ms(value: str) -> int | Literal["default"] | None:
    if value == "none":
        return None
    try:
        return _BUDGET.validate_python(int(value) if value.lstrip("-").isdecimal() else value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ").replace("null", "none")
        raise typer.BadParameter(reason) from error
