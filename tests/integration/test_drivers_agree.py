"""The same stage outcomes at the same times lead to the same decision: in process, in both durabilities, in replay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from temporalio.client import Client

from retold.client import Host, TurnResult
from retold.contracts.config import Switches
from retold.contracts.decision import TurnRecord
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.stages import ProposedGap, StoredAnswer
from retold.contracts.turn import Durability, Principal, TurnOptions
from retold.policy.driver import DraftFailedError
from retold.policy.orchestrator import UtilityAwareOrchestrator
from retold.policy.ports import MalformedReplyError, RefusedByProviderError
from retold.policy.recording import TurnRecorder
from retold.policy.replay import replay
from retold.policy.stages import TurnStageBodies
from retold.settings import WorkerSettings
from tests.scripted import ANNA, DRAFT, FINAL, GAP, RECORDS, Script, Stack, Step, helpful, request, scripted
from worker import turn_worker

# Latencies are either nothing or far beyond the limit they are tested against, so that what a durability costs
# cannot decide a case; what happens within milliseconds of a limit is nobody's promise.
FAST, SLOW = 0.0, 1_400.0
BUDGET_MS, TIGHT_TIMEOUT_MS = 800, 350

FAILURES = [KeyError("x"), MalformedReplyError("prose"), RefusedByProviderError("quota"), TimeoutError()]


def steps(*answers: Any) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.sampled_from([*answers, *FAILURES]), st.sampled_from([FAST, FAST, SLOW]))


SCRIPTS = st.builds(
    lambda script, shadow, gap_timeout: script.with_config(
        shadow=shadow, **({"gap_timeout_ms": TIGHT_TIMEOUT_MS} if gap_timeout else {})
    ),
    st.builds(
        Script,
        options=st.builds(TurnOptions, latency_budget_ms=st.sampled_from([None, 0, BUDGET_MS, BUDGET_MS, 60_000])),
        switches=st.builds(
            Switches,
            gap=st.sampled_from([True] * 6 + [False]),
            admission=st.sampled_from([True] * 6 + [False]),
            regeneration=st.sampled_from([True] * 4 + [False]),
        ),
        draft=st.builds(Step, st.sampled_from([DRAFT] * 8 + [OSError("reset")]), st.sampled_from([FAST, SLOW])),
        plan=steps((GAP,), (GAP,), (GAP,), (), (ProposedGap(category="gossip", query="q"),)),
        retrieve=steps(("r1", "r2"), ("r1", "r2"), ()),
        admit=steps(helpful("r1"), helpful("r1", "r2", verdict="jointly_helpful"), helpful()),
        regenerate=steps(FINAL, FINAL, " "),
        gone_before_regeneration=st.sampled_from([frozenset(), frozenset(), frozenset({"r2"}), frozenset(RECORDS)]),
    ),
    st.booleans(),
    st.booleans(),
)

Decided = tuple[Disposition, Reason]


@dataclass
class ByScript:
    """Stage bodies of many scripts behind one worker: the turn's text says whose turn it is."""

    stacks: dict[str, Stack]

    def __getattr__(self, stage: str) -> Any:
        return _Stage(self.stacks, stage)

    async def record_turn(self, record: TurnRecord) -> StoredAnswer | None:
        return await self.stacks[record.user_text].store.record_turn(record)


@dataclass
class _Stage:
    stacks: dict[str, Stack]
    stage: str

    async def __call__(self, stage: Any) -> Any:
        key = stage.turn_id if self.stage == "open" else stage.text
        return await getattr(self.stacks[key].bodies, self.stage)(stage)

    async def draft(self, stage: Any) -> Any:
        return await self.stacks[stage.text].bodies.generate.draft(stage)

    async def regenerate(self, stage: Any) -> Any:
        return await self.stacks[stage.text].bodies.generate.regenerate(stage)


async def in_process(script: Script) -> Decided:
    stack = scripted(script)
    orchestrator = UtilityAwareOrchestrator(stack.bodies, TurnRecorder(cast(Any, stack.store)))
    try:
        await orchestrator.prepare_turn(ANNA, "s1", "t1", "what can I eat?", options=script.options)
    except DraftFailedError:
        assert stack.decision.disposition is Disposition.FAILED
    await orchestrator.aclose()
    return stack.decision.disposition, stack.decision.reason


async def on_temporal(client: Client, scripts: list[Script], durability: Durability) -> list[Decided]:
    stacks = {f"turn {n}": scripted(script) for n, script in enumerate(scripts)}
    bodies = ByScript(stacks)
    queue, principal = f"turns-{uuid4()}", Principal(tenant=f"acme/{uuid4()}", user="anna")
    recorder = TurnRecorder(cast(Any, bodies))
    async with turn_worker(
        client, cast(TurnStageBodies, bodies), recorder, WorkerSettings(), task_queue=queue, sandboxed=True
    ):
        host = Host(client, task_queue=queue)

        async def one(key: str, script: Script) -> None:
            options = TurnOptions(latency_budget_ms=script.options.latency_budget_ms, durability=durability)
            turn = request(script.but(options=options), key, principal=principal, text=key, session_id=key)
            result = await asyncio.gather(host.send(turn), return_exceptions=True)
            assert isinstance(result[0], TurnResult) or stacks[key].script.draft.answer is not DRAFT

        await asyncio.gather(*(one(key, stack.script) for key, stack in stacks.items()))
    for stack in stacks.values():
        assert await replay(stack.decision) == (stack.decision.disposition, stack.decision.reason)
    return [(stack.decision.disposition, stack.decision.reason) for stack in stacks.values()]


@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(scripts=st.lists(SCRIPTS, min_size=12, max_size=12))
async def test_same_outcomes_same_decision_in_every_driver(client: Client, scripts: list[Script]) -> None:
    floor = list(await asyncio.gather(*(in_process(script) for script in scripts)))
    for durability in (Durability.TURN, Durability.STAGE):
        decided = await on_temporal(client, scripts, durability)
        differing = [script for script, ours, theirs in zip(scripts, floor, decided, strict=True) if ours != theirs]
        for script in differing:
            # Twelve turns on a busy machine may be late, which is no disagreement: that one stays when it is alone.
            assert [await in_process(script)] == await on_temporal(client, [script], durability), script
