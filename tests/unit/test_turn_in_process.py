"""The table of outcomes through the in-process driver, and what only shows there: prompts, records, cancellation."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from retold.contracts.decision import TurnRecord
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.stages import ProfileBlock, ProposedGap, StoredAnswer
from retold.contracts.turn import TurnOptions
from retold.policy.driver import DraftFailedError, TurnStart
from retold.policy.in_process import InProcessStages
from retold.policy.orchestrator import TurnMemoryDecision, UtilityAwareOrchestrator
from retold.policy.ports import GapDecision
from retold.policy.recording import CircuitBreaker, TurnRecorder
from retold.policy.replay import replay
from retold.policy.utility_aware import run_turn
from tests.cases import CASES, SERVED, Case
from tests.scripted import ANNA, DRAFT, FINAL, NEVER_MS, NOW, RECORDS, Script, Stack, Step, helpful, request, scripted


async def play(stack: Stack, recorder: TurnRecorder | None = None) -> TurnMemoryDecision:
    orchestrator = UtilityAwareOrchestrator(stack.bodies, recorder or TurnRecorder(stack.store))
    decided = await orchestrator.prepare_turn(ANNA, "s1", "t1", "what can I eat?", options=stack.script.options)
    await orchestrator.aclose()
    return decided


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_outcome(case: Case) -> None:
    stack = scripted(case.script)
    decided = await play(stack)
    decision = stack.decision
    assert (decision.disposition, decision.reason) == (case.disposition, case.reason)
    assert decision.bundle_approval == ("fitness" if case.script.config.serving else None)
    assert not set(case.not_called) & set(stack.called.ports)
    if case.failures is not None:
        assert decision.failures == case.failures
    if decision.disposition is Disposition.REGENERATED:
        assert decided.response == FINAL
    else:
        assert decided.response == case.script.draft.answer, "every other path returns the draft unchanged"
        assert decision.applied == ()
    assert await replay(decision) == (case.disposition, case.reason)


async def test_a_judge_cut_off_or_a_withheld_record_is_never_labelled_rejected() -> None:
    withheld = SERVED.with_budget(400).but(draft=Step("slow draft", 500))
    stack = scripted(withheld)
    await play(stack)
    assert [ref.id for ref in stack.decision.admitted] == ["r1"]
    assert {v.id: v.verdict.value for v in stack.decision.verdicts} == {"r1": "helpful", "r2": "insufficient"}


async def test_prompts_with_nothing_admitted_are_the_baseline_and_final_ones_hold_admitted_text_only() -> None:
    plain, served = scripted(SERVED.but(admit=Step(helpful()))), scripted(SERVED)
    await play(plain)
    await play(served)
    assert plain.called.prompts == served.called.prompts[:1]
    _, final = served.called.prompts
    assert RECORDS["r1"].text in final[0].content
    assert RECORDS["r2"].text not in final[0].content
    assert "insufficient" not in final[0].content


async def test_profile_off_withholds_it_whatever_else_is_on() -> None:
    profile = Step(ProfileBlock(text="Be brief.", records=(RECORDS["r2"].ref,)))
    on, off = (
        scripted(SERVED.but(profile=profile)),
        scripted(SERVED.but(profile=profile).with_config(profile_enabled=False)),
    )
    await play(on)
    await play(off)
    assert all("Be brief." in prompt[0].content for prompt in on.called.prompts)
    assert on.decision.profile_records == (RECORDS["r2"].ref,)
    assert not any("Be brief." in prompt[0].content for prompt in off.called.prompts)
    assert off.decision.profile_records == ()


async def test_a_failing_draft_is_retried_once_then_recorded_and_raised() -> None:
    stack = scripted(SERVED.but(draft=Step(OSError("reset"))))
    with pytest.raises(DraftFailedError, match="OSError"):
        await play(stack)
    assert stack.called.ports.count("draft") == 2
    assert (stack.decision.disposition, stack.decision.reason) == (Disposition.FAILED, Reason.DRAFT_ERROR)
    assert await replay(stack.decision) == (Disposition.FAILED, Reason.DRAFT_ERROR)


@pytest.mark.parametrize("hanging", ["draft", "plan", "retrieve", "admit", "regenerate"])
async def test_cancellation_by_the_host_is_recorded_wherever_it_lands(hanging: str) -> None:
    stack = scripted(SERVED.but(**{hanging: Step(None, NEVER_MS)}))
    turn = asyncio.create_task(play(stack))
    while hanging not in stack.called.ports:
        await asyncio.sleep(0.005)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert (stack.decision.disposition, stack.decision.reason) == (Disposition.CANCELLED, Reason.BY_HOST)
    assert await replay(stack.decision) == (Disposition.CANCELLED, Reason.BY_HOST)


async def test_a_stage_that_swallows_its_cancellation_does_not_hold_the_turn() -> None:
    released = asyncio.Event()

    async def stubborn(*_: object) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    stack = scripted(SERVED.with_config(gap_timeout_ms=100))
    object.__setattr__(stack.bodies.plan, "policy", type("Stubborn", (), {"plan": staticmethod(stubborn)})())
    async with asyncio.timeout(5):
        await play(stack)
    assert stack.decision.reason is Reason.PLANNER_TIMEOUT
    released.set()


async def test_the_store_away_while_recording_costs_nothing_and_loses_nothing() -> None:
    stack = scripted(SERVED)
    stack.store.fail_next = 2
    decided = await play(stack)
    assert decided.response == FINAL
    assert not decided.result.recorded
    assert stack.store.attempts == 3
    assert stack.decision.disposition is Disposition.REGENERATED


async def test_a_slow_store_is_not_waited_for_beyond_the_record_limit() -> None:
    stack = scripted(SERVED.but(record=Step(None, 700)))
    recorder = TurnRecorder(stack.store)
    orchestrator = UtilityAwareOrchestrator(stack.bodies, recorder)
    decided = await orchestrator.prepare_turn(ANNA, "s1", "t1", "what can I eat?")
    assert (decided.result.recorded, stack.store.written) == (False, {})
    await orchestrator.aclose()
    assert len(stack.store.written) == 1


def test_the_breaker_opens_after_failures_lets_one_attempt_through_and_closes_on_success() -> None:
    now_ms = [0.0]
    breaker = CircuitBreaker(failures_to_open=2, open_ms=100, clock_ms=lambda: now_ms[0])
    breaker.failed()
    assert breaker.allows()
    breaker.failed()
    assert not breaker.allows()
    now_ms[0] = 150
    assert breaker.allows()
    assert not breaker.allows(), "one attempt at a time finds out whether the store is back"
    breaker.succeeded()
    assert breaker.allows()


async def test_requested_and_effective_budget_and_timings_are_in_the_decision() -> None:
    script = Script(options=TurnOptions()).with_config(latency_budget_ms=60_000).but(draft=Step(DRAFT, 30))
    stack = scripted(script)
    await play(stack)
    decision = stack.decision
    assert (decision.requested_budget_ms, decision.effective_budget_ms) == ("default", 60_000)
    assert decision.draft_latency_ms is not None and decision.draft_latency_ms >= 30
    assert {"open", "draft", "plan", "plan_overhang", "retrieve", "admit", "regenerate"} == set(decision.timings_ms())
    assert decision.timings_ms()["plan_overhang"] == 0
    assert [use.role.value for use in decision.usage] == ["draft", "plan", "admit", "regenerate"]


class Quits(BaseException):
    """What no policy should raise."""


@pytest.mark.parametrize("raised", [Quits(), SystemExit(1), asyncio.CancelledError()], ids=lambda it: type(it).__name__)
@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        ("plan", Reason.PLANNER_ERROR),
        ("retrieve", Reason.RETRIEVAL_ERROR),
        ("admit", Reason.JUDGE_ERROR),
        ("regenerate", Reason.REGENERATION_ERROR),
    ],
)
async def test_a_policy_that_quits_or_cancels_itself_is_a_failure_of_its_stage(
    stage: str, reason: Reason, raised: BaseException
) -> None:
    stack = scripted(SERVED.but(**{stage: Step(raised)}))
    decided = await play(stack)
    assert (decided.response, stack.decision.reason) == (DRAFT, reason)


async def test_a_blocking_policy_that_exits_does_not_take_the_process_along() -> None:
    stack = scripted(SERVED.but(plan=Step(SystemExit(1), blocking=True)))
    await play(stack)
    assert stack.decision.reason is Reason.PLANNER_ERROR


async def test_giving_up_while_the_record_is_written_comes_too_late() -> None:
    stack = scripted(SERVED.but(record=Step(None, 100)))
    turn = asyncio.create_task(play(stack))
    while not stack.store.attempts:
        await asyncio.sleep(0.005)
    turn.cancel()
    assert (await turn).response == FINAL
    assert stack.decision.disposition is Disposition.REGENERATED


async def test_giving_up_a_turn_that_another_attempt_has_answered_gets_that_answer() -> None:
    stack = scripted(SERVED)
    answered = (await play(stack)).result
    given_up = TurnStart(started_at=NOW, given_up=True)
    stages = InProcessStages(stack.bodies, TurnRecorder(stack.store).try_record)
    assert await run_turn(request(SERVED), given_up, stages) == answered
    stages = InProcessStages(stack.bodies, TurnRecorder(stack.store).try_record)
    with pytest.raises(asyncio.CancelledError):
        await run_turn(request(SERVED, "t2"), given_up, stages)
    assert {row.decision.disposition for row in stack.store.written.values()} == {
        Disposition.REGENERATED,
        Disposition.CANCELLED,
    }


@pytest.mark.parametrize("budget_ms", [None, 60_000])
@pytest.mark.parametrize(
    ("shed_after_ms", "late_by_ms", "redelivered", "reason"),
    [
        (1_000, 1_000, False, Reason.ADMITTED),
        (1_000, 1_001, False, Reason.OVERLOADED),
        (None, 9_000, False, Reason.ADMITTED),
        (1_000, 9_000, True, Reason.ADMITTED),  # a dead worker's turn: nobody is overloaded
    ],
)
async def test_a_turn_that_waited_too_long_for_a_worker_goes_out_as_its_draft(
    budget_ms: int | None, shed_after_ms: int | None, late_by_ms: float, redelivered: bool, reason: Reason
) -> None:
    script = SERVED.with_config(shed_after_ms=shed_after_ms).with_budget(budget_ms)
    stack = scripted(script)
    start = TurnStart(started_at=NOW, late_by_ms=late_by_ms, redelivered=redelivered)
    result = await run_turn(request(script), start, InProcessStages(stack.bodies, TurnRecorder(stack.store).try_record))
    assert stack.decision.reason is reason
    assert (result.answer == DRAFT) == (reason is Reason.OVERLOADED)
    assert ("plan" in stack.called.ports) == (reason is Reason.ADMITTED)
    assert (await replay(stack.decision)).reason is reason


class Refusing:
    """Refuses a record twice, then takes it."""

    def __init__(self) -> None:
        self.asked = 0

    async def take(self, record: TurnRecord) -> StoredAnswer | None:
        self.asked += 1
        if self.asked < 3:
            raise ConnectionError("Temporal is away")
        return None


@pytest.mark.parametrize(("failures", "asked", "written"), [(0, 0, True), (1, 1, True), (2, 2, True), (9, 3, False)])
async def test_a_record_is_somewhere_durable_before_its_turn_ends(failures: int, asked: int, written: bool) -> None:
    stack, later = scripted(SERVED), Refusing()
    stack.store.fail_next = failures
    recorder = TurnRecorder(stack.store, CircuitBreaker(failures_to_open=100))
    stages = InProcessStages(stack.bodies, lambda record, limit_ms: recorder.record(record, limit_ms, later))
    result = await run_turn(request(SERVED), TurnStart(started_at=NOW), stages)
    assert (result.answer, result.recorded, later.asked) == (FINAL, written, asked)
    assert len(stack.store.written) == written


async def test_text_no_part_of_the_path_could_carry_is_malformed_in_every_driver() -> None:
    stack = scripted(SERVED)

    async def half_an_emoji(*_: object) -> GapDecision:
        return GapDecision(gaps=(ProposedGap(category="constraint", query="\ud83d"),))

    object.__setattr__(stack.bodies.plan, "policy", type("Half", (), {"plan": staticmethod(half_an_emoji)})())
    await play(stack)
    assert stack.decision.reason is Reason.PLANNER_MALFORMED
