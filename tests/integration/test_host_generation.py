"""Turns whose host generates on its own worker: the JSON it gets, and whatever becomes of what it answers."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from retold.client import (
    DraftFailedError,
    Durability,
    Host,
    HostGeneration,
    HostNotServingError,
    InvalidTurnError,
    TurnCancelledError,
)
from retold.contracts import names
from retold.contracts.disposition import Disposition as D
from retold.contracts.disposition import Reason as R
from retold.contracts.host_generation import HostRegenerateInput
from retold.contracts.stages import ModelUse, ProfileBlock, Stage
from tests.cases import SERVED
from tests.integration.test_turn_workflow import assert_replays, unique
from tests.own_worker import BOUND_S, OwnWorker, deployed, polling, vanish
from tests.scripted import DRAFT, FINAL, NEVER_MS, RECORDS, Script, Step

# --- what a host is told, and what its answer becomes ---------------------------------------------------------


async def test_the_host_generates_twice_and_sees_the_admitted_record_only(client: Client) -> None:
    script = SERVED.with_config(profile_enabled=True).but(profile=Step(ProfileBlock(text="Be brief.\n")))
    own = OwnWorker(
        draft=Step({"text": DRAFT, "model": "own", "prompt_tokens": 7, "later_field": [1]}).play,
        regenerate=Step({"text": FINAL, "model": "own", "completion_tokens": 3}).play,
    )
    async with deployed(client, script, own) as turn:
        result = await turn.ask()
        await assert_replays(turn.handle)
    assert (result.answer, result.disposition, result.reason) == (FINAL, D.REGENERATED, R.ADMITTED)
    assert result.delivered == (RECORDS["r1"].ref,)
    assert (result.durability, turn.decision.durability) == (Durability.STAGE, Durability.STAGE)
    by_host = [use for use in turn.decision.usage if use.role in (Stage.DRAFT, Stage.REGENERATE)]
    assert by_host == [
        ModelUse(role=Stage.DRAFT, model="own", prompt_tokens=7),
        ModelUse(role=Stage.REGENERATE, model="own", completion_tokens=3),
    ]
    assert turn.stack.called.prompts == []  # the service's own model was not asked

    (draft,), (again,) = own.asked["draft"], own.asked["regenerate"]
    assert draft == {
        "schema_version": 1,
        "principal": {"tenant": turn.principal.tenant, "user": turn.principal.user},
        "session_id": "s1",
        "turn_id": "t1",
        "text": "what can I eat?",
        "public_context": "a menu",
        "profile": "Be brief.\n",
        "limit_ms": 30_000,
        "deadline_at": None,
    }
    assert {name for name in again if name not in draft or again[name] != draft[name]} == {"memory"}
    lines = again["memory"].splitlines()
    inside = lines[lines.index("<memory-delimiter>") + 1 : lines.index("</memory-delimiter>")]
    assert [json.loads(line)["text"] for line in inside] == [RECORDS["r1"].text]
    told = json.dumps([draft, again])
    for hidden in ("text of r2", "r2", "helpful", "insufficient", "what anna may not eat", DRAFT):
        assert hidden not in told


async def test_under_a_budget_the_host_is_told_when_an_answer_comes_too_late(client: Client) -> None:
    own = OwnWorker()
    async with deployed(client, SERVED.with_budget(5_000), own) as turn:
        assert (await turn.ask()).answer == FINAL
    (asked,) = own.asked["regenerate"]
    told = HostRegenerateInput.model_validate(asked)
    assert told.deadline_at is not None and 0 < told.limit_ms <= 5_000
    (drafted_ms,) = (timing.ended_ms for timing in turn.decision.timings if timing.stage is Stage.DRAFT)
    until = turn.decision.at + timedelta(milliseconds=turn.decision.late_by_ms + drafted_ms + 5_000)
    assert abs(told.deadline_at - until) < timedelta(milliseconds=5)


async def test_a_host_is_not_asked_to_regenerate_from_a_record_deleted_meanwhile(client: Client) -> None:
    own = OwnWorker()
    async with deployed(client, SERVED.but(gone_before_regeneration=frozenset({"r1"})), own) as turn:
        result = await turn.ask()
        await assert_replays(turn.handle)
    assert (result.answer, result.delivered) == (DRAFT, ())
    assert (result.disposition, result.reason) == (D.BASELINE_EMPTY_ADMISSION, R.ADMITTED_RECORD_GONE)
    assert "regenerate" not in own.asked


def encoded(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


GARBAGE = {
    "a list": [{"text": "an answer"}],
    "no text": {"answer": "an answer"},
    "a number": 42,
    "nothing": None,
    "blank text": {"text": " \n"},
    "40,000 characters": {"text": "x" * 40_000},
    "negative tokens": {"text": "an answer", "prompt_tokens": -1},
    "half an emoji": encoded(rb'{"text": "\ud83d"}'),
    "half a document": encoded(b'{"text": "an ans'),
    "too deep": encoded(b'{"text": ' + b"[" * 100_000),
    "an encoding of its own": encoded(b"\x01\x02", b"binary/encrypted"),
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_is_no_answer(client: Client, answer: Any) -> None:
    own = OwnWorker(regenerate=Step(answer).play)
    async with deployed(client, SERVED, own) as turn:
        result = await turn.ask()
        assert (result.answer, result.disposition) == (DRAFT, D.BASELINE_POLICY_FAILURE)
        assert (result.reason, result.delivered) == (R.REGENERATION_MALFORMED, ())

        own.draft, turn.principal = Step(answer).play, unique()
        turn.stack.store.written.clear()
        with pytest.raises(DraftFailedError, match="malformed"):
            await turn.ask()
        assert (turn.decision.disposition, turn.decision.reason) == (D.FAILED, R.DRAFT_MALFORMED)


# --- absent, slow, failing, dying -----------------------------------------------------------------------------


async def test_nobody_on_the_named_queue_is_a_typed_error_within_the_pickup_timeout(client: Client) -> None:
    async with deployed(client, SERVED) as turn:
        started = time.monotonic()
        with pytest.raises(HostNotServingError, match="is the host's worker running"):
            await turn.ask(pickup_timeout_ms=300)
        assert time.monotonic() - started < 5  # 300 ms and the server's clock; the draft alone might take 30 s
        assert (turn.decision.disposition, turn.decision.reason) == (D.FAILED, R.DRAFT_ERROR)
        assert turn.decision.failures == (f"draft:error:{names.HOST_NOT_SERVING}",)
        await assert_replays(turn.handle)


async def test_a_host_that_serves_only_half_of_it_gets_its_drafts(client: Client) -> None:
    own = OwnWorker()
    async with deployed(client, SERVED) as turn, polling(client, turn.queue, [own.serve_draft]):
        result = await turn.ask()
    assert (result.answer, result.reason) == (DRAFT, R.REGENERATION_ERROR)


async def test_a_host_too_slow_for_its_draft_has_no_answer(client: Client) -> None:
    script = SERVED.with_config(draft_timeout_ms=200)
    async with deployed(client, script, OwnWorker(draft=Step(DRAFT, NEVER_MS).play)) as turn:
        with pytest.raises(DraftFailedError, match="timeout"):
            await turn.ask()
        assert (turn.decision.disposition, turn.decision.reason) == (D.FAILED, R.DRAFT_TIMEOUT)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (SERVED.with_budget(1_500), R.REGENERATION_CUT_OFF),
        (SERVED.with_config(regeneration_timeout_ms=200), R.REGENERATION_TIMEOUT),
    ],
    ids=["budget", "stage timeout"],
)
async def test_a_slow_regeneration_costs_the_limit_and_is_called_off(client: Client, script: Script, reason: R) -> None:
    own = OwnWorker(regenerate=Step({"text": FINAL}, NEVER_MS).play)
    async with deployed(client, script, own) as turn:
        result = await turn.ask()
        assert (result.answer, result.reason, result.delivered) == (DRAFT, reason, ())
        # A host that heartbeats hears that nobody waits any longer, and stops paying for the call.
        await asyncio.wait_for(own.given_up.wait(), BOUND_S)
        await assert_replays(turn.handle)


async def test_an_error_with_details_nobody_can_read_costs_the_regeneration_only(client: Client) -> None:
    secret = encoded(b"\x01\x02", b"binary/encrypted")
    own = OwnWorker(regenerate=Step(ApplicationError("overloaded", secret, type="Overloaded")).play)
    async with deployed(client, SERVED, own) as turn:
        result = await turn.ask()
        assert (result.answer, result.reason) == (DRAFT, R.REGENERATION_ERROR)
        assert turn.decision.failures == ("regenerate:error:Overloaded",)
        await assert_replays(turn.handle)


async def test_a_draft_that_failed_once_is_tried_again(client: Client) -> None:
    answers = iter([Step(OSError("reset")), Step({"text": DRAFT})])
    async with deployed(client, SERVED, OwnWorker(draft=lambda: next(answers).play())) as turn:
        # Less than the retry waits: what waits is the retry, not a worker nobody runs.
        assert (await turn.ask(pickup_timeout_ms=500)).answer == FINAL


async def test_a_host_dying_in_mid_regeneration_costs_its_heartbeat_timeout(client: Client) -> None:
    async with deployed(client, SERVED, OwnWorker(regenerate=vanish)) as turn:
        result = await turn.ask(heartbeat_timeout_ms=500)
        assert (result.answer, result.reason) == (DRAFT, R.REGENERATION_TIMEOUT)
        await assert_replays(turn.handle)


@pytest.mark.parametrize("hanging", ["draft", "regenerate"])
async def test_giving_up_a_turn_reaches_the_hosts_own_worker(client: Client, hanging: str) -> None:
    own = OwnWorker()
    setattr(own, hanging, Step(None, NEVER_MS).play)
    async with deployed(client, SERVED, own) as turn:
        answer = asyncio.create_task(turn.ask())
        await turn.started(names.GENERATE_DRAFT if hanging == "draft" else names.REGENERATE)
        await turn.host.cancel(turn.principal, "s1", "t1")
        with pytest.raises(TurnCancelledError):
            await answer
        assert (turn.decision.disposition, turn.decision.reason) == (D.CANCELLED, R.BY_HOST)
        await asyncio.wait_for(own.given_up.wait(), BOUND_S)


async def test_turn_durability_is_refused_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(InvalidTurnError, match="durability: turns of a host that generates on its own worker"):
        await Host(client).turn(
            unique(), "s1", "t1", "hello", durability=Durability.TURN, host_generation=HostGeneration(task_queue="own")
        )
