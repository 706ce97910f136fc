"""The ways a turn's surroundings die, one function each: do it to a turn in flight, wait, and say what became of it.

Each checks what must hold whatever is measured: one answer, one decision row that agrees with it. What a scenario
costs is in what it returns.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.crash_rig import CrashRig, Execution, Line, SentTurn
from benchmarks.crash_worker import STAGES
from retold.contracts.decision import TurnDecision
from retold.contracts.turn import Durability, TurnResult

TAKES_MS = {"open": 100, "draft": 200, "plan": 450, "retrieve": 100, "admit": 200, "regenerate": 200, "record": 100}
"""Long enough to be killed in, and together below the 1.6 s after which the SDK keeps what a first task has done."""

ATTEMPTS_TO_HIT = 3

TOGETHER = ("draft", "plan")

PLAN_ALONE_MS = 325
"""After the plan began: the draft, which began with it, is done, and the plan is not."""


class MissedError(Exception):
    """The crash came too late for the stage it was meant for: the machine was too busy."""


@dataclass(frozen=True, kw_only=True)
class Survived:
    """A turn that got through a crash."""

    answer_after_ms: float
    """From the crash to the answer at the host."""
    total_ms: float
    again: dict[str, int]
    """Stages that had begun before the crash and began after it, with how often."""
    result: TurnResult
    row: TurnDecision
    history_events: int


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A turn whose store was away when it was to be recorded."""

    total_ms: float
    result: TurnResult
    row: TurnDecision
    row_after_ms: float
    """From the moment the store was back (for a store that hung: from the answer) to the row."""


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Turns in flight while their worker stopped politely."""

    exit_code: int
    stopped_after_ms: float
    answer_after_ms: float
    """From SIGTERM to the last answer."""
    executions: Counter[str]
    """Without the record's: a slow insert is left to a second one, of the same row, wherever that runs."""
    finished_in_place: bool
    """Whether no other worker had to do anything for the answers."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Many turns in flight while one of two workers was killed."""

    turns: int
    answers: int
    rows: int
    answer_after_ms: float
    """From the crash to the last answer."""
    drafted_again: int


async def undisturbed(rig: CrashRig, line: Line, durability: Durability) -> float:
    """How many milliseconds a turn takes that nothing happens to."""
    sent = rig.send(line, durability)
    result, at = await sent.answered()
    await _row(rig, sent, result)
    return (at - sent.sent_at) * 1000


async def worker_killed(
    rig: CrashRig,
    line: Line,
    durability: Durability,
    stage: str,
    *,
    budget_ms: int | None = None,
    standby: bool = True,
) -> Survived:
    """kill -9 of the worker while it is in a stage. Afterwards nobody stands by.

    Args:
        standby: False: no other worker runs; one is started at the moment of the crash.

    Raises:
        MissedError: the turn never came to the stage, or had left it, again and again.
    """
    for attempt in range(ATTEMPTS_TO_HIT):
        if attempt:
            await line.stand_by()
        since = len(line.executions())
        sent = rig.send(line, durability, budget_ms=budget_ms)
        await _reached(line, sent, stage, since)
        if stage == "plan":
            await asyncio.sleep(PLAN_ALONE_MS / 1000)
        killed_at = await line.active.kill()
        if not standby:
            await line.standby.end()
            await line.stand_by()
        await line.take_over()
        result, at = await sent.answered()
        if _hit(stage, [execution for execution in line.executions()[since:] if execution.at < killed_at]):
            return await _survived(rig, line, sent, since, killed_at, result, at)
    raise MissedError(f"in {ATTEMPTS_TO_HIT} attempts the turn had left {stage!r} when its worker was killed")


async def server_killed(rig: CrashRig, line: Line, durability: Durability, stage: str, *, away_s: float) -> Survived:
    """kill -9 of the Temporal server; restarted on its file. The host waits on, and sends the turn again as well."""
    since = len(line.executions())
    sent = rig.send(line, durability)
    await line.began(stage, since)
    killed_at = await rig.kill_server()
    await asyncio.sleep(away_s)
    await rig.restart_server()
    again = rig.send_again(line, sent.request)
    result, at = await sent.answered()
    assert (await again.answered())[0] == result
    return await _survived(rig, line, sent, since, killed_at, result, at)


async def store_locked(
    rig: CrashRig, line: Line, durability: Durability, *, for_s: float, kill_worker: bool = False
) -> Recorded:
    """Another process holds the store's write lock while the turn is to be recorded, and for a while after its answer.

    Args:
        kill_worker: also kill -9 the worker between the answer and the release of the lock.
    """
    since = len(line.executions())
    sent = rig.send(line, durability)
    await line.began("regenerate", since)
    async with rig.store_locked():
        result, at = await sent.answered()
        if kill_worker:
            await line.active.kill()
            await line.take_over()
        await asyncio.sleep(for_s)
        assert await rig.store.decisions(session_id=sent.request.session_id) == []
    return await _recorded(rig, sent, result, at, time.time())


async def store_hung(rig: CrashRig, line: Line, durability: Durability) -> Recorded:
    """A store that takes seconds for the row. The line's `record` says how many."""
    sent = rig.send(line, durability)
    result, at = await sent.answered()
    return await _recorded(rig, sent, result, at, at)


async def stopped_politely(rig: CrashRig, line: Line, durability: Durability, *, turns: int = 5) -> Stopped:
    """SIGTERM while turns are being drafted and another worker polls, as in a rolling deployment."""
    since = len(line.executions())
    sent = [rig.send(line, durability) for _ in range(turns)]
    await line.began("draft", since, times=turns)
    stopping = line.active
    await line.take_over()
    told_at = time.time()
    exit_code = await stopping.stop()
    stopped_at = time.time()
    answers = [await turn.answered() for turn in sent]
    for turn, (result, _) in zip(sent, answers, strict=True):
        await _row(rig, turn, result)
    executions = [execution for execution in line.executions()[since:] if execution.stage != "record"]
    return Stopped(
        exit_code=exit_code,
        stopped_after_ms=(stopped_at - told_at) * 1000,
        answer_after_ms=(max(at for _, at in answers) - told_at) * 1000,
        executions=Counter(execution.stage for execution in executions),
        finished_in_place=all(execution.pid == stopping.pid for execution in executions),
    )


async def killed_under_load(rig: CrashRig, line: Line, durability: Durability, *, turns: int) -> Load:
    """kill -9 of one of two polling workers while turns are in all of their stages."""
    since = len(line.executions())
    killed = line.active
    await line.take_over()
    sent: list[SentTurn] = []
    for _ in range(turns):
        sent.append(rig.send(line, durability))
        await asyncio.sleep(0.04)
    killed_at = await killed.kill()
    answers = [await turn.answered() for turn in sent]
    rows = [await _row(rig, turn, result) for turn, (result, _) in zip(sent, answers, strict=True)]
    drafted = sum(execution.stage == "draft" for execution in line.executions()[since:])
    return Load(
        turns=turns,
        answers=len(answers),
        rows=len({row.decision_id for row in rows}),
        answer_after_ms=(max(at for _, at in answers) - killed_at) * 1000,
        drafted_again=drafted - turns,
    )


async def _survived(
    rig: CrashRig, line: Line, sent: SentTurn, since: int, crashed_at: float, result: TurnResult, at: float
) -> Survived:
    row = await _row(rig, sent, result)
    executions = line.executions()[since:]
    began = {execution.stage for execution in executions if execution.at < crashed_at}
    after = [execution.stage for execution in executions if execution.at >= crashed_at]
    return Survived(
        answer_after_ms=(at - crashed_at) * 1000,
        total_ms=(at - sent.sent_at) * 1000,
        again=dict(Counter(stage for stage in after if stage in began)),
        result=result,
        row=row,
        history_events=await rig.history_events(sent),
    )


async def _recorded(rig: CrashRig, sent: SentTurn, result: TurnResult, at: float, back_at: float) -> Recorded:
    row = await _row(rig, sent, result)
    return Recorded(
        total_ms=(at - sent.sent_at) * 1000, result=result, row=row, row_after_ms=(time.time() - back_at) * 1000
    )


async def _row(rig: CrashRig, sent: SentTurn, result: TurnResult) -> TurnDecision:
    """The turn's one row; it says of the turn what its host was told."""
    row = await rig.row(sent)
    assert (row.decision_id, row.disposition, row.reason, row.redelivered) == (
        result.decision_id,
        result.disposition,
        result.reason,
        result.redelivered,
    )
    return row


async def _reached(line: Line, sent: SentTurn, stage: str, since: int) -> None:
    """Wait until the stage has begun, and with the draft the plan beside it."""
    for begins in TOGETHER if stage in TOGETHER else (stage,):
        began = asyncio.create_task(line.began(begins, since))
        await asyncio.wait({began, sent.answer}, return_when=asyncio.FIRST_COMPLETED)
        if not began.done():
            began.cancel()
            raise MissedError(f"the turn was answered and never came to {stage!r}: {(await sent.answer)[0].reason}")
        await began


def _hit(stage: str, before: Sequence[Execution]) -> bool:
    """Whether this stage had begun, and none after it."""
    wanted = {*STAGES[: STAGES.index(stage) + 1], *(TOGETHER if stage in TOGETHER else ())}
    return {execution.stage for execution in before} == wanted
