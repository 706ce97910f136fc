"""A Temporal that answers at its door and nowhere else is away: said as such, and `retold switch` has another way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.service import RPCError, RPCStatusCode

from retold.cli import main, switch
from retold.cli.failures import CommandError
from retold.cli.running_stack import RunningStack
from retold.contracts import names
from retold.contracts.switches import SwitchesInForce
from retold.settings import Settings
from tests.unit.cli.test_switch import OFF, in_force, migrated, unwrapped

REFUSED = RPCStatusCode.PERMISSION_DENIED


class HalfDead:
    """A server whose frontend answers. What is behind it does not: a call to it fails as such calls do."""

    namespace = "default"

    def __init__(self, at: str, status: RPCStatusCode) -> None:
        self._at, self._status = at, status
        self.workflow_service = SimpleNamespace(describe_task_queue=self._describe)

    def config(self, **_: bool) -> dict[str, list[object]]:
        return {"interceptors": []}

    async def _describe(self, *_: object, **__: object) -> DescribeTaskQueueResponse:
        self._fail("matching")
        seen = Timestamp()
        seen.FromDatetime(datetime.now(UTC))
        return DescribeTaskQueueResponse(pollers=[PollerInfo(last_access_time=seen)])

    async def execute_workflow(self, *_: object, **__: object) -> Any:
        self._fail("history")

    def _fail(self, service: str) -> None:
        if service == self._at:
            raise RPCError("no healthy host", self._status, b"")


def stack(at: str, status: RPCStatusCode) -> RunningStack:
    client: Any = HalfDead(at, status)
    return RunningStack(client, Settings(), "127.0.0.1:7233")


@pytest.mark.parametrize("at", ["matching", "history"])
@pytest.mark.parametrize("status", [RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED])
async def test_what_is_away_is_said_so_with_its_address(at: str, status: RPCStatusCode) -> None:
    with pytest.raises(CommandError, match=r"does not answer at 127\.0\.0\.1:7233"):
        await listed(stack(at, status))
    with pytest.raises(RPCError):  # an answer: somebody has to look at credentials
        await listed(stack(at, REFUSED))


async def listed(running: RunningStack) -> SwitchesInForce:
    return await running.operate(names.LIST_SWITCHES_WORKFLOW, None, SwitchesInForce, workflow_id="switches")


@pytest.mark.parametrize("at", ["matching", "history"])
def test_switching_off_works_while_temporal_is_half_dead(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[RunningStack]:
        yield stack(at, RPCStatusCode.UNAVAILABLE)

    monkeypatch.setattr(switch, "connected", connected)
    monkeypatch.setenv("RETOLD_DATA_DIR", str(tmp_path))
    asyncio.run(migrated(tmp_path))
    assert main(OFF) == 0
    assert "straight in the store: Temporal does not answer" in unwrapped(capsys)
    assert asyncio.run(in_force(tmp_path)) == ["regeneration"]
