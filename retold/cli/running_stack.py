"""A stack that runs somewhere, asked through Temporal and never past it: the command works beside any worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import ValidationError
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from retold.cli.failures import CommandError, does_not_answer, is_away
from retold.client import Host, OperationRefusedError, UnreachableError, open_client, operated
from retold.client.runtime import core_runtime as core_runtime
from retold.contracts import names
from retold.contracts.decision import TurnDecision
from retold.contracts.forgetting import ForgetReceipt, ReceiptFilter
from retold.contracts.operations import (
    DecisionFilter,
    DecisionView,
    Deployment,
    InspectDecision,
    InspectDecisions,
    InspectDeployment,
    InspectInput,
    InspectReceipt,
    InspectReceipts,
    InspectRequest,
    InspectResult,
)
from retold.settings import Settings, SettingsSourceError

REACH_TIMEOUT_S = 5
POLLER_SEEN_WITHIN = timedelta(seconds=90)
"""A worker asks again within 60 s even when nothing happens; the server remembers dead ones for minutes."""
INSPECT_TIMEOUT = timedelta(seconds=45)
OPERATION_TIMEOUT = timedelta(minutes=5)

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True)
class Whereabouts:
    """Where Temporal is, as far as the command line says; the rest comes from temporalio's environment."""

    address: str | None = None
    namespace: str | None = None
    profile: str | None = None


def read_settings() -> Settings:
    """The settings of the environment.

    Raises:
        CommandError: one is wrong; the message names its environment variable.
    """
    try:
        return Settings()
    except SettingsSourceError as error:
        raise CommandError(str(error)) from error
    except ValidationError as error:
        raise CommandError("the settings are wrong", _which_are_wrong(error)) from error


def _which_are_wrong(error: ValidationError) -> str:
    """Which environment variables are wrong, and why. Values are not repeated: some are keys."""
    lines = []
    for detail in error.errors(include_url=False, include_input=False):
        variable = "__".join(str(part).upper() for part in detail["loc"])
        lines.append(f"RETOLD_{variable}: {detail['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)


@asynccontextmanager
async def connected(where: Whereabouts, settings: Settings) -> AsyncIterator[RunningStack]:
    """Reach Temporal, within 5 s.

    Raises:
        CommandError: Temporal does not answer, or is configured in a way that cannot be read.
    """
    try:
        client = await open_client(
            address=where.address, namespace=where.namespace, profile=where.profile, lazy=True, runtime=core_runtime()
        )
    except (RuntimeError, ValueError) as error:  # what temporalio raises for a bad profile, file or address
        raise CommandError(f"Temporal's client configuration cannot be used: {error}") from error
    address = client.service_client.config.target_host
    try:
        async with asyncio.timeout(REACH_TIMEOUT_S):
            await client.workflow_service.get_system_info(GetSystemInfoRequest())
    except (RuntimeError, TimeoutError) as error:  # a lazy client's first connection fails with a bare RuntimeError
        raise does_not_answer(address) from error
    except RPCError as error:
        if error.status is RPCStatusCode.UNAVAILABLE:
            raise does_not_answer(address) from error
        raise
    yield RunningStack(client, settings, address)


class RunningStack:
    """One connection, and what an operator does with it.

    Every method raises CommandError when no worker is there to answer, and the client's typed errors
    (OperationRefusedError and the like) when one refuses.
    """

    def __init__(self, client: Client, settings: Settings, address: str) -> None:
        self.client = client
        self.address = address
        self.turns_queue = settings.worker.turns_queue
        self.operations_queue = settings.worker.operations_queue
        self.lifecycle_queue = settings.worker.lifecycle_queue
        self.host = Host(
            client,
            task_queue=self.turns_queue,
            operations_queue=self.operations_queue,
            lifecycle_queue=self.lifecycle_queue,
        )

    async def pollers(self, queue: str) -> int:
        """How many workers asked this task queue for workflow tasks within the last 90 s."""
        answer = await self.client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self.client.namespace,
                task_queue=TaskQueue(name=queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            ),
            timeout=timedelta(seconds=REACH_TIMEOUT_S),
        )
        since = datetime.now(UTC) - POLLER_SEEN_WITHIN
        return sum(poller.last_access_time.ToDatetime(UTC) >= since for poller in answer.pollers)

    async def retention_days(self) -> float:
        """How long the namespace keeps closed workflows; raises RPCError where there is no such namespace."""
        answer = await self.client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=self.client.namespace), timeout=timedelta(seconds=REACH_TIMEOUT_S)
        )
        return answer.config.workflow_execution_retention_ttl.ToTimedelta() / timedelta(days=1)

    async def expect_worker(self, queue: str) -> None:
        """Refuse to wait for an answer nobody will give. A worker that has just begun is given its first moment."""
        for moment_s in (0.0, 0.3, 0.7, 1.0):
            await asyncio.sleep(moment_s)
            try:
                if await self.pollers(queue):
                    return
            except RPCError as error:
                if not is_away(error):
                    raise
                raise does_not_answer(self.address) from error
        raise CommandError(
            f"no worker polls the task queue {queue} (namespace {self.client.namespace} at {self.address})",
            "start `retold dev` or `python worker.py`",
        )

    async def operate(
        self,
        workflow: str,
        argument: Any,
        result_type: type[ResultT],
        *,
        workflow_id: str,
        queue: str | None = None,
        timeout: timedelta = OPERATION_TIMEOUT,
    ) -> ResultT:
        """Run one operation to its end. The same id joins an operation that still runs, and repeats one that ended.

        Args:
            queue: whose workers run it; None: those of offline work.
        """
        queue = queue or self.operations_queue
        await self.expect_worker(queue)
        try:
            return await operated(
                self.client, workflow, argument, result_type, workflow_id=workflow_id, task_queue=queue, within=timeout
            )
        except UnreachableError as error:
            raise does_not_answer(self.address) from error

    async def decisions(self, wanted: DecisionFilter) -> tuple[TurnDecision, ...]:
        return (await self._inspect(InspectDecisions(filter=wanted))).decisions

    async def decision(self, decision_id: str) -> DecisionView:
        view = (await self._inspect(InspectDecision(decision_id=decision_id))).decision
        if view is None:
            raise CommandError("the worker answered without the decision: it runs another version of Retold")
        return view

    async def receipts(self, wanted: ReceiptFilter) -> tuple[ForgetReceipt, ...]:
        return (await self._inspect(InspectReceipts(filter=wanted))).receipts

    async def receipt(self, receipt_id: str) -> ForgetReceipt:
        (receipt,) = (await self._inspect(InspectReceipt(receipt_id=receipt_id))).receipts
        return receipt

    async def recorded(self, decision_id: str, within_s: float) -> None:
        """Wait until a late record is written: the store was slow or away when its turn ended.

        Raises:
            CommandError: it was not, within `within_s` seconds.
        """
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        await self.decision(decision_id)
                    except OperationRefusedError:  # not there yet
                        await asyncio.sleep(0.25)
                    else:
                        return
        except TimeoutError as error:
            raise CommandError(
                f"the decision is not recorded yet; later, `retold decisions show {decision_id}` has it"
            ) from error

    async def deployment(self, timeout: timedelta = INSPECT_TIMEOUT) -> Deployment:
        deployment = (await self._inspect(InspectDeployment(), timeout)).deployment
        if deployment is None:
            raise CommandError("the worker answered without its deployment: it runs another version of Retold")
        return deployment

    async def _inspect(self, request: InspectRequest, timeout: timedelta = INSPECT_TIMEOUT) -> InspectResult:
        return await self.operate(
            names.INSPECT_WORKFLOW,
            InspectInput(request=request),
            InspectResult,
            workflow_id=f"inspect/{uuid4()}",
            timeout=timeout,
        )
