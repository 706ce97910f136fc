"""`retold demo`: a real conversation through the whole embedded stack, every decision on screen, ends by itself.

Twenty turns of one hand-written person (examples/scenario). Nothing is staged by a flag: where a turn shows a
failure, the planner's endpoint really hangs, the judge's really chats, and the index is really stopped.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from retold.cli.demo_learning import Lesson, learn
from retold.cli.embedded import EmbeddedStack, embedded_stack
from retold.cli.failures import CommandError
from retold.cli.installation import checkout_root
from retold.cli.json_lines import json_lines
from retold.cli.misbehaving import misbehaving_endpoint
from retold.cli.output import render_turn
from retold.cli.running_stack import RunningStack
from retold.cli.stopping import until_asked_to_stop
from retold.cli.terminal import out
from retold.client import Host, TurnResult
from retold.contracts import names
from retold.contracts._base import Contract
from retold.contracts.config import AdmissionMode, UtilityAwareConfig
from retold.contracts.disposition import SERVING_DISPOSITIONS, Disposition, Reason
from retold.contracts.importing import ImportReport
from retold.contracts.operations import DecisionView, DevelopmentAmbientInput, ImportInput
from retold.contracts.record import RecordRef, RecordWrite, TranscriptWrite
from retold.contracts.turn import Durability, Principal, TurnOptions, TurnRequest
from retold.policy.stages import AdmitStage, PlanStage
from retold.settings import ModelRole, Settings

Breakage = Literal["planner_hangs", "slow_planner", "judge_answers_prose", "index_stopped"]

STOPPED = 130
"""Exit code of a demo that was told to stop."""

_BROKEN = {
    "planner_hangs": "for this turn the planner is a hosted model whose endpoint accepts the call and never answers",
    "slow_planner": "for this turn the planner is a hosted model whose endpoint takes 3 s",
    "judge_answers_prose": "for this turn the judge is a hosted model that chats instead of answering JSON",
    "index_stopped": "before this turn the index's engine is stopped, and it stays stopped",
}


class Expectation(Contract):
    dispositions: tuple[Disposition, ...]
    reasons: tuple[Reason, ...] = ()
    because: str
    answer_contains: tuple[str, ...] = ()


class ScriptedTurn(Contract):
    """One turn of the scenario, with what should become of it."""

    turn_id: str
    session_id: str
    text: str
    public_context: str | None = None
    latency_budget_ms: int | Literal["default"] | None = "default"
    durability: Durability = Durability.AUTO
    expect: Expectation
    breakage: Breakage | None = None
    note: str = ""


@dataclass(frozen=True)
class Scenario:
    principal: Principal
    neighbour: Principal
    never_in_an_answer: Sequence[str]
    records: Sequence[RecordWrite]
    transcript: Sequence[TranscriptWrite]
    neighbours_records: Sequence[RecordWrite]
    ambient: Sequence[str]
    lesson: Lesson
    turns: Sequence[ScriptedTurn]

    @classmethod
    def read(cls, folder: Path) -> Scenario:
        about = json.loads((folder / "scenario.json").read_text())
        return cls(
            principal=Principal.model_validate(about["principal"]),
            neighbour=Principal.model_validate(about["neighbour"]),
            never_in_an_answer=about["never_in_an_answer"],
            records=[RecordWrite.model_validate(line) for line in json_lines(folder / "records.jsonl")],
            transcript=[TranscriptWrite.model_validate(line) for line in json_lines(folder / "transcript.jsonl")],
            neighbours_records=[RecordWrite.model_validate(line) for line in json_lines(folder / "neighbour.jsonl")],
            ambient=json.loads((folder / "ambient.json").read_text()),
            lesson=Lesson.read(folder),
            turns=[ScriptedTurn.model_validate(turn) for turn in json.loads((folder / "turns.json").read_text())],
        )


@dataclass
class Tally:
    """What the demo saw, for its closing table."""

    dispositions: Counter[Disposition]
    unexpected: list[str]
    helped: int = 0
    known_without_memory: int = 0
    leaked: int = 0

    @property
    def missing(self) -> list[str]:
        return [each.value for each in SERVING_DISPOSITIONS if not self.dispositions[each]]


def demo() -> None:
    """Play a real conversation through the whole embedded stack and show every decision."""
    root = checkout_root()
    if root is None:
        raise CommandError("the demo's conversation is in the repository: run it from a checkout")
    scenario, console = Scenario.read(root / "examples" / "scenario"), out()
    with tempfile.TemporaryDirectory(prefix="retold-demo-") as data_dir:
        tally = asyncio.run(_until_stopped(scenario, Path(data_dir), console))
    if tally is None:
        raise typer.Exit(STOPPED)
    _close(tally, console)
    if tally.missing or tally.unexpected or tally.leaked:
        raise typer.Exit(1)


def demo_settings(data_dir: Path) -> Settings:
    utility = UtilityAwareConfig(
        gap_enabled=True,
        admission_mode=AdmissionMode.LOCAL_JUDGE,
        shadow=False,
        shed_after_ms=None,  # a machine that is busy with other things shows the same seven dispositions
    )
    return Settings(data_dir=data_dir, utility=utility, development_approval="retold demo: nobody is served by it")


async def _until_stopped(scenario: Scenario, data_dir: Path, console: Console) -> Tally | None:
    """None: somebody wanted it to stop. Nothing of it stays behind."""
    with until_asked_to_stop():
        return await _play(scenario, data_dir, console)
    return None


async def _play(scenario: Scenario, data_dir: Path, console: Console) -> Tally:
    console.print("starting Temporal, the store, the index and two small models, all on this machine", style="dim")
    async with embedded_stack(demo_settings(data_dir)) as stack, _broken_queues(stack) as queues:
        for role, model in (await stack.adapters.examine()).identities.items():
            console.print(f"  {role}: {model}", style="dim")
        await _remember(stack, scenario, console)
        tally = Tally(Counter(), await learn(stack, scenario.neighbour, scenario.lesson, console))
        for number, turn in enumerate(scenario.turns, 1):
            console.rule(f"turn {number} of {len(scenario.turns)}  {turn.session_id}")
            console.print(turn.note, style="italic dim", markup=False)
            if turn.breakage is not None:
                console.print(_BROKEN[turn.breakage], style="yellow")
            if turn.breakage == "index_stopped":
                await stack.adapters.index.aclose()
            broken = turn.breakage is not None and turn.breakage in queues
            queue = str(turn.breakage) if broken else stack.settings.worker.turns_queue
            await _one_turn(stack, scenario, turn, queue, tally, console)
        return tally


async def _remember(stack: EmbeddedStack, scenario: Scenario, console: Console) -> None:
    """What an earlier session left behind: records, turns, and two reviewed preferences."""
    wrote = await _import(stack, scenario.principal, [*scenario.records, *scenario.transcript])
    await _import(stack, scenario.neighbour, scenario.neighbours_records)
    for key in scenario.ambient:
        await stack.client.execute_workflow(
            names.DEVELOPMENT_AMBIENT_WORKFLOW,
            DevelopmentAmbientInput(
                principal=scenario.principal, record_id=key, actor="retold demo", reason="stands in for a review"
            ),
            id=f"demo-ambient/{key}",
            task_queue=stack.settings.worker.operations_queue,
            result_type=RecordRef,
        )
    console.print(
        f"remembered {wrote.written} records and {wrote.turns_written} earlier turns of "
        f"{scenario.principal.user}; {len(scenario.ambient)} of them are standing preferences\n",
        style="dim",
    )


async def _import(
    stack: EmbeddedStack, principal: Principal, lines: Sequence[RecordWrite | TranscriptWrite]
) -> ImportReport:
    report: ImportReport = await stack.client.execute_workflow(
        names.IMPORT_WORKFLOW,
        ImportInput(principal=principal, lines=tuple(lines), actor="retold demo"),
        id=f"demo-import/{principal.user}",
        task_queue=stack.settings.worker.operations_queue,
        result_type=ImportReport,
    )
    if report.refused:
        raise CommandError(f"the scenario has lines the store refuses: {report.refused}")
    return report


async def _one_turn(
    stack: EmbeddedStack, scenario: Scenario, turn: ScriptedTurn, queue: str, tally: Tally, console: Console
) -> None:
    host = Host(stack.client, task_queue=queue)
    with console.status(f"“{turn.text}”"):
        result = await host.send(
            TurnRequest(
                principal=scenario.principal,
                session_id=turn.session_id,
                turn_id=turn.turn_id,
                text=turn.text,
                public_context=turn.public_context,
                options=TurnOptions(latency_budget_ms=turn.latency_budget_ms, durability=turn.durability),
            )
        )
        assert isinstance(result, TurnResult), "the demo has no fallback"
        view = await _view(stack, result)
    render_turn(
        console,
        view.decision,
        user_text=turn.text,
        answer=result.answer,
        draft=view.said.get("draft"),
        texts=view.record_texts,
    )
    _judge(turn, result, view, scenario, tally, console)


async def _view(stack: EmbeddedStack, result: TurnResult) -> DecisionView:
    """The decision, as soon as it is recorded: at once, or by the workflow that records late."""
    running = RunningStack(stack.client, stack.settings, stack.addresses.temporal)
    async with asyncio.timeout(30):
        while not result.recorded and await stack.adapters.store.decision(result.decision_id) is None:
            await asyncio.sleep(0.05)
    return await running.decision(result.decision_id)


def _judge(
    turn: ScriptedTurn, result: TurnResult, view: DecisionView, scenario: Scenario, tally: Tally, console: Console
) -> None:
    expect, draft = turn.expect, view.said.get("draft", "")
    tally.dispositions[result.disposition] += 1
    as_expected = result.disposition in expect.dispositions and (not expect.reasons or result.reason in expect.reasons)
    if not as_expected:
        tally.unexpected.append(f"{turn.turn_id}: {result.disposition.value}/{result.reason.value}")
    if result.disposition is Disposition.REGENERATED:
        tally.helped += all(part.lower() in result.answer.lower() for part in expect.answer_contains)
        tally.known_without_memory += all(part.lower() in draft.lower() for part in expect.answer_contains)
    tally.leaked += any(part.lower() in result.answer.lower() for part in scenario.never_in_an_answer)
    style, mark = ("green", "as it should be") if as_expected else ("bold red", "NOT as it should be")
    console.print(f"{mark}: {expect.because}\n", style=style, markup=False)


def _close(tally: Tally, console: Console) -> None:
    table = Table(title="what became of the turns", title_justify="left")
    table.add_column("disposition")
    table.add_column("turns", justify="right")
    for disposition in SERVING_DISPOSITIONS:
        table.add_row(disposition.value, str(tally.dispositions[disposition]))
    console.print(table)
    served = tally.dispositions[Disposition.REGENERATED]
    console.print(
        f"{served} answers were improved by memory: {tally.helped} hold the fact that was asked for, "
        f"of their drafts {tally.known_without_memory} did."
    )
    console.print(f"answers holding something foreign, outdated or injected: {tally.leaked}")
    for line in tally.unexpected:
        console.print(f"unexpected: {line}", style="bold red", markup=False)
    if tally.missing:
        console.print(f"not seen: {', '.join(tally.missing)}", style="bold red")


@asynccontextmanager
async def _broken_queues(stack: EmbeddedStack) -> AsyncIterator[Set[str]]:
    """Workers beside the real one, each with one model role pointed at an endpoint that is really broken."""
    from retold.roles import hosted_judge, hosted_planner  # adapters: half a second no other command needs

    worker: Any = importlib.import_module("worker")
    adapters = stack.adapters
    async with AsyncExitStack() as exits:

        async def role(misbehaviour: Literal["hangs", "slow", "prose"]) -> ModelRole:
            url = await exits.enter_async_context(misbehaving_endpoint(misbehaviour))
            return ModelRole.model_validate(
                {"provider": "openai", "model": "broken", "base_url": url, "api_key": "none"}
            )

        hangs = PlanStage(policy=hosted_planner(await role("hangs"), exits), pool=adapters.pool)
        slow = PlanStage(policy=hosted_planner(await role("slow"), exits), pool=adapters.pool)
        prose = AdmitStage(policy=hosted_judge(await role("prose"), exits), store=adapters.store, pool=adapters.pool)
        broken = {
            "planner_hangs": replace(adapters.bodies, plan=hangs),
            "slow_planner": replace(adapters.bodies, plan=slow),
            "judge_answers_prose": replace(adapters.bodies, admit=prose),
        }
        for queue, bodies in broken.items():
            await exits.enter_async_context(
                worker.turn_worker(stack.client, bodies, adapters.recorder, stack.settings.worker, task_queue=queue)
            )
        yield broken.keys()
