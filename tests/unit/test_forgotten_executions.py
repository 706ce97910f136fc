"""Waiting for executions to end and to be deleted takes its time whatever the worker's clock shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from activities import forgotten_executions
from activities.forgotten_executions import ForgottenExecutions, StillThereError
from retold.contracts import names
from retold.contracts.forgetting import Forgetting
from retold.contracts.identity import principal_prefixes
from retold.contracts.turn import Principal
from retold.policy.forgetting import Probes
from retold.policy.limits import utc_now

WHO = Principal(tenant="acme", user="ada")


class Temporal:
    """Knows one execution, which neither ends nor goes whatever is asked of it."""

    namespace = "default"
    data_converter = SimpleNamespace(payload_codec=None)

    def __init__(self, started: datetime) -> None:
        self.execution = SimpleNamespace(
            id=f"{principal_prefixes(WHO)[0]}1", run_id="run", workflow_type=names.IMPORT_WORKFLOW, start_time=started
        )
        self.terminated = 0
        self.workflow_service = SimpleNamespace(delete_workflow_execution=self._answers)

    async def list_workflows(self, _: str) -> AsyncIterator[Any]:
        yield self.execution

    def get_workflow_handle(self, _: str, *, run_id: str) -> Any:
        return SimpleNamespace(describe=self._answers, terminate=self._terminate)

    async def _answers(self, *_: object) -> Any:
        return SimpleNamespace(status=WorkflowExecutionStatus.RUNNING)

    async def _terminate(self, _: str) -> None:
        self.terminated += 1


@pytest.mark.parametrize("clock_ahead", [timedelta(hours=-1), timedelta(0), timedelta(hours=1)])
async def test_a_wrong_clock_neither_shortens_nor_lengthens_the_wait(
    clock_ahead: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgotten_executions, "VISIBLE_AFTER_S", 0.2)
    monkeypatch.setattr(forgotten_executions, "OTHERS_END_WITHIN_S", 0.4)
    monkeypatch.setattr(forgotten_executions, "GONE_WITHIN_S", 0.4)
    # When it was asked, as another worker's clock said: to the one that forgets it is an hour away.
    asked = utc_now() - clock_ahead
    temporal: Any = Temporal(asked - timedelta(minutes=1))
    forgetting = Forgetting(receipt_id="r", principal=WHO, what="principal", subject_id="ada", forgotten_at=asked)
    executions = ForgottenExecutions(temporal, forgetting, Probes([]), {})
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(10):
        assert await executions.close_open() == 1
        took = asyncio.get_running_loop().time() - begun
        assert temporal.terminated == 1
        assert 0.6 <= took < 3
        with pytest.raises(StillThereError, match="1 of 1"):
            await executions.delete([temporal.execution])
