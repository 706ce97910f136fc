"""The composition root: settings -> adapters -> activities -> Temporal workers. Nothing else builds a worker.

    python worker.py        # connects as temporalio's environment configuration says, serves until SIGTERM

Three task queues: turns; changes to records with what follows from them (activation, reviews); and everything an
operator asks for. So an import never stands before a turn, nor before somebody who corrects a record.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities.activation import ActivationActivities
from activities.admission import AdmissionActivities
from activities.answering import AnsweringActivities
from activities.extraction import ExtractionActivities
from activities.forgetting import ForgettingActivities
from activities.generation import GenerationActivities
from activities.indexing import IndexingActivities
from activities.late_records import LateRecordWorkflows
from activities.memory_workflows import MemoryWorkflows
from activities.opening import OpeningActivities
from activities.operations import OperationActivities
from activities.permitted import PermittedStages
from activities.planning import PlanningActivities
from activities.recording import RecordingActivities
from activities.records import RecordActivities
from activities.retrieval import RetrievalActivities
from activities.review_workflows import ReviewWorkflows
from activities.reviewing import ReviewActivities
from activities.switching import SwitchActivities
from retold.client import UnreachableError, open_client, prepare_review_attributes
from retold.client.runtime import core_runtime
from retold.client.tracing import install_tracing
from retold.composition import Adapters, compose
from retold.ending import end_process
from retold.index.following import follow_outbox
from retold.models.installed import require_models
from retold.policy.permits import MemoryPermits
from retold.policy.recording import TurnRecorder
from retold.policy.stages import TurnStageBodies
from retold.readiness import Readiness, index_answers, switches_are_fresh
from retold.security import require_whole
from retold.settings import Settings, WorkerSettings
from retold.store.sweeping import sweep_due_records, sweep_idle_sessions, sweep_unread_sessions
from retold.telemetry.endpoint import prometheus_endpoint
from retold.telemetry.gauges import StoreGauges
from retold.telemetry.logs import leave_out_expected_noise, log_as_json
from retold.telemetry.metrics import WORKER_READY, watch
from retold.telemetry.probes import serving_probes
from workflows.activation import ActivationWorkflow
from workflows.extraction import ExtractionWorkflow
from workflows.forget import ForgetWorkflow
from workflows.index import IndexOverviewWorkflow, RebuildIndexWorkflow, ReconcileIndexWorkflow
from workflows.operations import (
    DevelopmentAmbientWorkflow,
    EndSessionWorkflow,
    ImportWorkflow,
    InspectWorkflow,
)
from workflows.record_turn import RecordTurnWorkflow
from workflows.records import (
    ContradictRecordsWorkflow,
    CorrectRecordWorkflow,
    DeleteRecordWorkflow,
    ExpireRecordWorkflow,
    ReadRecordsWorkflow,
    RememberWorkflow,
    RestoreRecordWorkflow,
    SupersedeRecordWorkflow,
)
from workflows.review import DecideReviewWorkflow, ReviewWorkflow
from workflows.switching import ListSwitchesWorkflow, SwitchWorkflow
from workflows.turn import TurnWorkflow
from workflows.versioning import VersionedRunner

logger = logging.getLogger(__name__)

TURNS_A_PERMIT = 3
"""Turns a worker takes at once, for each that may have memory: those above are overload and go out as drafts."""
WORKFLOW_TASK_POLLS, STICKY_POLLS = 5, 2
"""A poll holds a slot while it waits. Of the SDK's five polls four are for sticky queues, which a turn answered in one
activity never has: four slots would stand empty while turns wait."""

OBSERVE_EVERY_S = 10.0
SWEEP_EVERY = timedelta(minutes=1)
UNREAD_EVERY = timedelta(seconds=15)

TURN_WORKFLOWS = [TurnWorkflow, RecordTurnWorkflow]
OPERATION_WORKFLOWS = [
    ImportWorkflow,
    ExtractionWorkflow,
    EndSessionWorkflow,
    DevelopmentAmbientWorkflow,
    InspectWorkflow,
    ReconcileIndexWorkflow,
    RebuildIndexWorkflow,
    IndexOverviewWorkflow,
    ForgetWorkflow,
]
LIFECYCLE_WORKFLOWS = [
    RememberWorkflow,
    SupersedeRecordWorkflow,
    ContradictRecordsWorkflow,
    CorrectRecordWorkflow,
    ExpireRecordWorkflow,
    RestoreRecordWorkflow,
    DeleteRecordWorkflow,
    ReadRecordsWorkflow,
    ActivationWorkflow,
    ReviewWorkflow,
    DecideReviewWorkflow,
    SwitchWorkflow,
    ListSwitchesWorkflow,
]
ALL_WORKFLOWS = [*TURN_WORKFLOWS, *OPERATION_WORKFLOWS, *LIFECYCLE_WORKFLOWS]


def turn_worker(
    client: Client,
    bodies: TurnStageBodies,
    recorder: TurnRecorder,
    settings: WorkerSettings,
    *,
    task_queue: str,
    sandboxed: bool = False,
) -> Worker:
    """The worker that answers turns.

    Deadlines hold only while slots and the event loop are free, so local activities get a multiple of the turns
    that may be in flight, and workflow tasks are bounded (design section 3.1).
    """
    later = LateRecordWorkflows(client)
    permits = MemoryPermits(settings.concurrent_turns)
    return Worker(
        client,
        task_queue=task_queue,
        interceptors=[PermittedStages(permits)],
        workflows=TURN_WORKFLOWS,
        activities=[
            *AnsweringActivities(bodies, recorder, later, permits).get_activities(),
            *OpeningActivities(bodies.open).get_activities(),
            *GenerationActivities(bodies.generate).get_activities(),
            *PlanningActivities(bodies.plan).get_activities(),
            *RetrievalActivities(bodies.retrieve).get_activities(),
            *AdmissionActivities(bodies.admit).get_activities(),
            *RecordingActivities(recorder, later).get_activities(),
        ],
        workflow_runner=runner_of(settings, sandboxed=sandboxed),
        max_concurrent_workflow_tasks=TURNS_A_PERMIT * settings.concurrent_turns + STICKY_POLLS,
        max_concurrent_workflow_task_polls=WORKFLOW_TASK_POLLS,
        nonsticky_to_sticky_poll_ratio=1 - STICKY_POLLS / WORKFLOW_TASK_POLLS,
        max_concurrent_local_activities=4 * settings.concurrent_turns,
        max_concurrent_activities=4 * settings.concurrent_turns,
        # A worker that died is noticed by its sticky queue; 10 s of default is a long time for somebody who waits.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        max_heartbeat_throttle_interval=timedelta(milliseconds=200),
        default_heartbeat_throttle_interval=timedelta(milliseconds=200),
        graceful_shutdown_timeout=timedelta(seconds=settings.graceful_shutdown_s),
        deployment_config=version_of(settings),
    )


def operations_worker(
    client: Client, adapters: Adapters, settings: WorkerSettings, *, task_queue: str, sandboxed: bool = False
) -> Worker:
    """The worker that imports, looks after the index, and answers operators."""
    operations = OperationActivities(
        adapters.store,
        adapters.indexer,
        adapters.examine,
        activation_queue=settings.lifecycle_queue,
        reads_sessions=settings.extraction_idle_s > 0,
    )
    return Worker(
        client,
        task_queue=task_queue,
        workflows=OPERATION_WORKFLOWS,
        activities=[
            *operations.get_activities(),
            *ExtractionActivities(adapters.extraction, settings.lifecycle_queue).get_activities(),
            *IndexingActivities(adapters.store, adapters.index, adapters.indexer).get_activities(),
            *ForgettingActivities(
                adapters.store.forgetting,
                adapters.every_index,
                client,
                adapters.out_of_reach,
            ).get_activities(),
        ],
        workflow_runner=runner_of(settings, sandboxed=sandboxed),
        max_concurrent_activities=settings.concurrent_operations,
        graceful_shutdown_timeout=timedelta(seconds=settings.graceful_shutdown_s),
        deployment_config=version_of(settings),
    )


def lifecycle_worker(
    client: Client,
    adapters: Adapters,
    reviews: ReviewWorkflows,
    settings: WorkerSettings,
    *,
    task_queue: str,
    sandboxed: bool = False,
) -> Worker:
    """The worker that changes records, and follows what a change sets in motion."""
    operations = OperationActivities(adapters.store, adapters.indexer, adapters.examine)
    return Worker(
        client,
        task_queue=task_queue,
        workflows=LIFECYCLE_WORKFLOWS,
        activities=[
            *RecordActivities(adapters.store).get_activities(),
            *ActivationActivities(adapters.activation, adapters.store.decision).get_activities(),
            *ReviewActivities(
                adapters.store.reviews, adapters.review_notifier, reviews, decision_of=adapters.store.decision
            ).get_activities(),
            *SwitchActivities(adapters.store.switches, adapters.switches).get_activities(),
            operations.bring_index_into_line,
        ],
        workflow_runner=runner_of(settings, sandboxed=sandboxed),
        max_concurrent_activities=settings.concurrent_operations,
        graceful_shutdown_timeout=timedelta(seconds=settings.graceful_shutdown_s),
        deployment_config=version_of(settings),
    )


def version_of(settings: WorkerSettings) -> WorkerDeploymentConfig | None:
    """Which version these workers are; None: not versioned, whoever polls takes whatever is due."""
    if settings.deployment_name is None or settings.build_id is None:
        return None
    version = WorkerDeploymentVersion(deployment_name=settings.deployment_name, build_id=settings.build_id)
    return WorkerDeploymentConfig(
        version=version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE
    )


def runner_of(settings: WorkerSettings, *, sandboxed: bool) -> WorkflowRunner:
    """Unsandboxed in production; the sandbox is for tests, which it tells of what would not replay.

    Versioned workers have a runner that says what stays with the version that began it.
    """
    if sandboxed:
        return SandboxedWorkflowRunner()
    return UnsandboxedWorkflowRunner() if settings.build_id is None else VersionedRunner()


def review_workflows(client: Client, adapters: Adapters, settings: Settings) -> ReviewWorkflows:
    """What keeps Temporal in step with the review queue."""
    return ReviewWorkflows(
        client,
        adapters.store.reviews,
        adapters.review_notifier,
        settings.review,
        task_queue=settings.worker.lifecycle_queue,
    )


@asynccontextmanager
async def running(client: Client, adapters: Adapters, settings: Settings) -> AsyncIterator[None]:
    """All workers, polling until the block ends; then they finish what they have in hand."""
    leave_out_expected_noise()
    keep_what_is_loaded()
    async with AsyncExitStack() as stack:
        worker = settings.worker
        await stack.enter_async_context(
            turn_worker(client, adapters.bodies, adapters.recorder, worker, task_queue=worker.turns_queue)
        )
        await stack.enter_async_context(operations_worker(client, adapters, worker, task_queue=worker.operations_queue))
        await prepare_review_attributes(client)
        reviews = review_workflows(client, adapters, settings)
        reviews.watch()
        await stack.enter_async_context(
            lifecycle_worker(client, adapters, reviews, worker, task_queue=worker.lifecycle_queue)
        )
        idle = timedelta(minutes=worker.session_idle_minutes)
        readiness = worker_readiness(client, adapters)
        watch(WORKER_READY, readiness.as_metric)
        gauges = StoreGauges(adapters.store, adapters.switches)
        gauges.watch()
        await stack.enter_async_context(
            beside(
                readiness.keep_looking(OBSERVE_EVERY_S),
                gauges.keep_reading(OBSERVE_EVERY_S),
                sweep_idle_sessions(adapters.store, idle=idle, every=SWEEP_EVERY),
                follow_outbox(adapters.indexer, adapters.index, adapters.store, worker=_this_process()),
                reviews.sweep_for_ever(),
                adapters.switches.keep_reading(worker.switches_read_every_s),
                *memory_chores(client, adapters, worker),
            )
        )
        if worker.probes_address is not None:
            await stack.enter_async_context(serving_probes(worker.probes_address, readiness))
        yield


def memory_chores(client: Client, adapters: Adapters, settings: WorkerSettings) -> list[Coroutine[Any, Any, None]]:
    """What becomes due without anybody asking: records whose time comes or goes, and sessions nobody has read."""
    due = MemoryWorkflows(client, settings.operations_queue, settings.lifecycle_queue)
    chores = [sweep_due_records(adapters.store, due.evaluate, every=SWEEP_EVERY)]
    if settings.extraction_idle_s > 0:
        idle = timedelta(seconds=settings.extraction_idle_s)
        every = max(timedelta(seconds=1), min(idle / 4, UNREAD_EVERY))
        chores.append(sweep_unread_sessions(adapters.store, due.read, idle=idle, every=every))
    return chores


def worker_readiness(client: Client, adapters: Adapters) -> Readiness:
    """What this worker needs to do its work, and how to see whether it is there."""
    return Readiness(
        {
            "temporal": lambda: client.service_client.check_health(timeout=timedelta(seconds=2)),
            "store": adapters.store.ping,
            "index": lambda: index_answers(adapters.index),
            "switches": switches_are_fresh(adapters.switches),
        }
    )


@asynccontextmanager
async def beside(*chores: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Chores that never end, run while the block does. One that ends all the same is logged; the others go on."""
    tasks = [asyncio.create_task(chore, name=getattr(chore, "__qualname__", "a chore")) for chore in chores]
    for task in tasks:
        task.add_done_callback(_say_that_it_ended)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _this_process() -> str:
    """A name no other running worker has, wherever it runs."""
    return f"{socket.gethostname()[:80]}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


def _say_that_it_ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        logger.error("%s ended and is not running any more", task.get_name(), exc_info=task.exception())


def keep_what_is_loaded() -> None:
    """Leave what is in memory by now out of garbage collection. It stays for as long as the process does, and every
    full collection would look at all of it and hold every turn for 150 ms meanwhile.
    """
    gc.collect()
    gc.freeze()


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        HalfConfiguredError: something is meant to be protected and is not.
        ModelsMissingError: a small model is asked for and not installed.
        UnreachableError: Temporal does not answer. Whoever started this starts it again.
    """
    require_whole(settings)
    require_models(settings)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    worker = settings.worker
    with ExitStack() as endpoints:
        readers = []
        if worker.metrics_address is not None:
            readers.append(endpoints.enter_context(prometheus_endpoint(worker.metrics_address)))
        endpoints.enter_context(install_tracing(settings.service_name, readers=readers))
        async with compose(settings) as adapters:
            try:
                client = await open_client(runtime=core_runtime(worker.temporal_metrics_address))
            except RuntimeError as error:
                raise UnreachableError(f"Temporal is out of reach: {error}") from error
            async with running(client, adapters, settings):
                await stop.wait()


if __name__ == "__main__":
    configured = Settings()
    log_as_json(with_exception_messages=configured.capture_text)
    try:
        asyncio.run(serve(configured))
    except Exception as error:
        # Not left to the interpreter: that would print what our log leaves out, and finalise under the SDK's threads.
        if type(error).__module__.startswith("retold."):
            logger.error("the worker does not run: %s", error)
        else:
            logger.exception("the worker ended")
        end_process(1)
    end_process(0)
