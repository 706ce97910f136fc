"""Two versions of the workers beside each other, on a real server: who gets what while one takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import RoutingConfigUpdateState, VersioningBehavior
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentVersionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    UpdateWorkflowExecutionOptionsRequest,
)
from temporalio.client import Client
from temporalio.common import VersioningBehavior as Behaviour
from temporalio.service import RPCError

from retold.client import TurnResult, connect
from retold.contracts import names
from retold.contracts.identity import turn_workflow_id
from retold.contracts.review import Resolution, Review, ReviewOutcome, ReviewStatus
from retold.contracts.turn import Durability, TurnOptions
from retold.credentials import ReviewerCredential
from retold.policy.recording import TurnRecorder
from retold.settings import WorkerSettings
from tests.integration.reviewing import Desk, eventually, review_desk
from tests.scripted import ANNA, GAP, Script, Step, request, scripted
from tests.unit.store.review_items import decision
from worker import ALL_WORKFLOWS, runner_of, turn_worker, version_of
from workflows.review import ReviewWorkflow
from workflows.turn import TurnWorkflow
from workflows.versioning import STAYS, behaviour

STAGES = TurnOptions(durability=Durability.STAGE)
NOT_WITHIN_S = 1.5
"""How long a test waits for what must not happen."""


class Versions:
    """A deployment of this test's own, with the task queues of turns and of reviews."""

    def __init__(self, client: Client, desk: Desk) -> None:
        self.client, self.desk = client, desk
        self.name = f"retold-{uuid4()}"
        self.turns_queue = f"turns-{uuid4()}"

    def settings(self, build: str) -> WorkerSettings:
        return WorkerSettings(deployment_name=self.name, build_id=build, graceful_shutdown_s=5)

    @asynccontextmanager
    async def running(self, build: str, plan: Step = Step((GAP,))) -> AsyncIterator[None]:
        """Workers of one build, known to the server. Their draft says which build it is."""
        stack = scripted(Script(draft=Step(f"drafted by {build}"), plan=plan, regenerate=Step(f"by {build}")))
        settings = self.settings(build)
        turns = turn_worker(self.client, stack.bodies, TurnRecorder(stack.store), settings, task_queue=self.turns_queue)
        reviews = self.desk.worker(
            deployment_config=version_of(settings), workflow_runner=runner_of(settings, sandboxed=False)
        )
        async with turns, reviews:
            await eventually(lambda: self._polls(build))
            yield

    async def _polls(self, build: str) -> bool:
        wanted = DescribeWorkerDeploymentVersionRequest(
            namespace=self.client.namespace,
            deployment_version=WorkerDeploymentVersion(deployment_name=self.name, build_id=build),
        )
        try:
            found = await self.client.workflow_service.describe_worker_deployment_version(wanted)
        except RPCError:
            return False
        queues = {queue.name for queue in found.worker_deployment_version_info.task_queue_infos}
        return queues == {self.turns_queue, self.desk.task_queue}

    async def make_current(self, build: str) -> None:
        """What `temporal worker deployment set-current-version` asks for."""
        await self.client.workflow_service.set_worker_deployment_current_version(
            SetWorkerDeploymentCurrentVersionRequest(
                namespace=self.client.namespace,
                deployment_name=self.name,
                build_id=build,
                identity="a test",
                # Which queues a version has is known a moment after its workers began: `eventually` below waits.
                ignore_missing_task_queues=True,
            )
        )
        await eventually(self._every_queue_knows)

    async def _every_queue_knows(self) -> bool:
        """Task queues hear of it a moment later; until then they hand work to the version before."""
        wanted = DescribeWorkerDeploymentRequest(namespace=self.client.namespace, deployment_name=self.name)
        found = await self.client.workflow_service.describe_worker_deployment(wanted)
        state = found.worker_deployment_info.routing_config_update_state
        return state == RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_COMPLETED

    async def move(self, workflow_id: str) -> None:
        """Let the workflow go on with whatever version is current."""
        upgrading = VersioningOverride(auto_upgrade=True)
        await self.client.workflow_service.update_workflow_execution_options(
            UpdateWorkflowExecutionOptionsRequest(
                namespace=self.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=workflow_id),
                workflow_execution_options=WorkflowExecutionOptions(versioning_override=upgrading),
                update_mask=FieldMask(paths=["versioning_override"]),
            )
        )

    async def turn(self, name: str) -> str:
        # A host of its own: where client and worker share a process, a turn starts eagerly on that very worker.
        address = self.client.service_client.config.target_host
        async with connect(address=address, namespace=self.client.namespace, task_queue=self.turns_queue) as host:
            result = await host.send(request(Script(options=STAGES), name))
        assert isinstance(result, TurnResult)
        return result.answer

    async def pinned_to(self, workflow_id: str) -> str | None:
        found = await self.client.get_workflow_handle(workflow_id).describe()
        versioning = found.raw_description.workflow_execution_info.versioning_info
        if versioning.behavior != VersioningBehavior.VERSIONING_BEHAVIOR_PINNED:
            return None
        return versioning.deployment_version.build_id


@pytest.fixture
async def versions(client: Client, tmp_path: Path) -> AsyncIterator[Versions]:
    async with review_desk(client, tmp_path) as desk:
        yield Versions(client, desk)


async def test_turns_go_to_the_current_version_and_one_in_flight_ends_where_it_began(versions: Versions) -> None:
    planning = Step((GAP,), after_ms=3_500)
    async with versions.running("one", planning):
        await versions.make_current("one")
        in_flight = asyncio.create_task(versions.turn("t1"))
        workflow_id = turn_workflow_id(ANNA, "s1", "t1")
        await eventually(lambda: _begun(versions, workflow_id))
        async with versions.running("two"):
            await versions.make_current("two")
            assert await versions.turn("t2") == "by two"
            assert not in_flight.done(), "the second version came while the first was at work"
            assert await in_flight == "by one"


async def test_a_review_stays_with_the_version_that_began_it(versions: Versions) -> None:
    desk = versions.desk
    review, rita = await _review_begun_by_one(versions)
    async with versions.running("two"):
        await versions.make_current("two")
        deciding = asyncio.create_task(desk.reviews.send(decision(rita, review, Resolution.REJECT)))
        await asyncio.sleep(NOT_WITHIN_S)
        assert not deciding.done(), "the new version took a review that the old one began"
        later = await desk.opened()
        await eventually(lambda: versions.pinned_to(f"review/{later.review_id}"))
        assert await versions.pinned_to(f"review/{later.review_id}") == "two"
    async with versions.running("one"):
        outcome: ReviewOutcome = await deciding
    assert outcome.status is ReviewStatus.REJECTED
    assert await versions.pinned_to(f"review/{review.review_id}") == "one"


async def test_a_review_can_be_moved_to_the_current_version(versions: Versions) -> None:
    """What the runbook's `temporal workflow update-options` asks for."""
    desk = versions.desk
    review, rita = await _review_begun_by_one(versions)
    async with versions.running("two"):
        await versions.make_current("two")
        await versions.move(f"review/{review.review_id}")
        outcome = await desk.reviews.send(decision(rita, review, Resolution.REJECT))
    assert outcome.status is ReviewStatus.REJECTED


async def test_the_first_version_takes_what_unversioned_workers_had(versions: Versions) -> None:
    desk = versions.desk
    async with desk.worker():
        review, rita = await desk.opened(), await desk.queue.reviewer()
        await desk.reviews.state(review.review_id)
    async with versions.running("one"):
        await versions.make_current("one")
        outcome = await desk.reviews.send(decision(rita, review, Resolution.REJECT))
    assert outcome.status is ReviewStatus.REJECTED


def test_only_what_somebody_waits_for_and_what_waits_for_somebody_stays() -> None:
    """A name that no workflow has would let the one that was meant go on with any version."""
    known = {names.TURN_WORKFLOW: TurnWorkflow, names.REVIEW_WORKFLOW: ReviewWorkflow}
    assert set(known) == STAYS and set(known.values()) <= set(ALL_WORKFLOWS)
    assert behaviour(names.RECORD_TURN_WORKFLOW) is Behaviour.AUTO_UPGRADE


async def _review_begun_by_one(versions: Versions) -> tuple[Review, ReviewerCredential]:
    """An open review, pinned to version one, which is gone by now; and who may decide it."""
    async with versions.running("one"):
        await versions.make_current("one")
        review, rita = await versions.desk.opened(), await versions.desk.queue.reviewer()
        await eventually(lambda: versions.pinned_to(f"review/{review.review_id}"))
    return review, rita


async def _begun(versions: Versions, workflow_id: str) -> bool:
    try:
        return await versions.pinned_to(workflow_id) == "one"
    except RPCError:
        return False
