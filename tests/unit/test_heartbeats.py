"""Activities that have a heartbeat timeout beat while they run: one that never did would be killed while it works."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from activities import heartbeat
from activities.forgetting import ForgettingActivities
from activities.operations import OperationActivities
from activities.records import RecordActivities
from activities.reviewing import ReviewActivities
from activities.switching import SwitchActivities
from retold.contracts import names

WORKFLOWS = Path(__file__).resolve().parents[2] / "workflows"


class Away:
    """A store, an index or a server in which every call that was begun never ends."""

    def __getattr__(self, name: str) -> Away:
        return self

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return asyncio.Event().wait()


AWAY: Any = Away()
DURABLE = {
    activity._Definition.must_from_callable(each).name: each
    for served in (
        RecordActivities(AWAY),
        OperationActivities(AWAY, AWAY, AWAY),
        SwitchActivities(AWAY, AWAY),
        ReviewActivities(AWAY, AWAY, AWAY),
        ForgettingActivities(AWAY, AWAY, AWAY),
    )
    for each in served.get_activities()
}


def called_with_a_heartbeat_timeout() -> set[str]:
    """Every activity that a workflow names where it calls `durably`, or a function of its module that does."""
    called = {names.STEP_REVIEW, names.DECIDE_REVIEW, names.GIVE_UP_FORGETTING}
    for path in WORKFLOWS.glob("*.py"):
        tree = ast.parse(path.read_text())
        modules = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
        for call in ast.walk(tree) if "workflows.durably" in modules else ():
            match call:
                case ast.Call(func=ast.Name(id="durably" | "_changed"), args=[ast.Attribute(attr=constant), *_]):
                    called.add(getattr(names, constant))
    return called


def test_all_of_them_are_known_here() -> None:
    assert {names.REMEMBER, names.IMPORT_LINES, names.START_REVIEWS} <= called_with_a_heartbeat_timeout()
    assert called_with_a_heartbeat_timeout() <= DURABLE.keys()


@pytest.mark.parametrize("name", sorted(called_with_a_heartbeat_timeout()))
async def test_one_that_waits_for_what_is_away_beats(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "FIRST_BEAT_S", 0.01)
    monkeypatch.setattr(heartbeat, "UNHURRIED_BEAT_S", 0.01)
    beats = asyncio.Semaphore(0)
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *_: beats.release()
    running = asyncio.create_task(environment.run(DURABLE[name], *_arguments(DURABLE[name])))
    async with asyncio.timeout(5):
        await beats.acquire()
        await beats.acquire()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert beats.locked(), "and not a moment longer than it runs"


async def test_a_short_one_costs_no_beat_and_keeps_its_signature() -> None:
    @activity.defn(name="short")
    @heartbeat.while_beating
    async def short(number: int) -> str:
        await asyncio.sleep(0.05)
        return str(number)

    beats: list[object] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    assert await environment.run(short, 7) == "7"
    assert beats == []
    definition = activity._Definition.must_from_callable(short)
    assert (definition.arg_types, definition.ret_type) == ([int], str)


def _arguments(called: Callable[..., Any]) -> list[Any]:
    return [MagicMock() for _ in inspect.signature(called).parameters]
