"""The stack under measurement, started as `retold dev` starts it: the same server options, the same store, spans on.

Client and workers share this process, turns start eagerly, workflows run unsandboxed (design section 3.1).
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import GrpcCompression

from benchmarks.ports import TEXT, development_certificate
from retold.cli.embedded import NAMESPACE, embedded_temporal
from retold.cli.running_stack import core_runtime
from retold.client import Host, plugins
from retold.client.tracing import install_tracing
from retold.contracts.disposition import Disposition
from retold.contracts.record import RecordRef, RecordWrite
from retold.contracts.turn import Durability, Principal, TurnOptions, TurnRequest, TurnResult
from retold.policy.bundles import Certificate
from retold.policy.limits import utc_now
from retold.policy.recording import TurnRecorder
from retold.policy.stages import TurnStageBodies
from retold.settings import WorkerSettings
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from worker import keep_what_is_loaded, turn_worker

TENANTS = 50
RECORDS_A_TENANT = 8
RECORD_TEXT = "The team prefers dish number"
TURNS_A_SESSION = 10
"""The session's profile is assembled in the first of them and read in the others."""


class CountedAndDropped(SpanExporter):
    """Takes spans out of the batches as a collector would, and keeps nothing but their number."""

    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


@dataclass(frozen=True)
class Stack:
    address: str
    folder: Path
    store: Store
    certificate: Certificate
    principals: Sequence[Principal]
    stored: Mapping[Principal, Sequence[RecordRef]]
    spans: CountedAndDropped

    async def client(self, runtime: Runtime | None = None, interceptors: Sequence[Any] = ()) -> Client:
        return await Client.connect(
            self.address,
            namespace=NAMESPACE,
            tls=False,
            plugins=plugins(),
            interceptors=interceptors,
            runtime=runtime or core_runtime(),
            grpc_compression=GrpcCompression.NONE,
        )

    def request(
        self,
        run: str,
        conversation: int,
        number: int,
        durability: Durability,
        budget_ms: int | None,
        text: str = TEXT,
    ) -> TurnRequest:
        """One turn of a conversation: a session of its own, with the principal whose turn it is."""
        return TurnRequest(
            principal=self.principals[conversation % len(self.principals)],
            session_id=f"{run}-{conversation}",
            turn_id=str(number),
            text=text,
            options=TurnOptions(latency_budget_ms=budget_ms, durability=durability),
        )


@asynccontextmanager
async def measured_stack(folder: Path) -> AsyncIterator[Stack]:
    """Server, store with a few records of each tenant, tracing. Everything stops when the block ends."""
    spans = CountedAndDropped()
    with install_tracing("retold-benchmark", processors=[BatchSpanProcessor(spans)]):
        async with embedded_temporal(folder) as addresses:
            engine = open_engine(f"sqlite+aiosqlite:///{folder / 'retold.db'}")
            await migrate(engine)
            store = Store(engine)
            try:
                principals = [Principal(tenant=f"tenant-{number}", user="user") for number in range(TENANTS)]
                stored = {principal: await _with_records(store, principal) for principal in principals}
                certificate = await development_certificate(store)
                keep_what_is_loaded()
                yield Stack(addresses.temporal, folder, store, certificate, principals, stored, spans)
            finally:
                await store.close()


@asynccontextmanager
async def serving(client: Client, bodies: TurnStageBodies, recorder: TurnRecorder) -> AsyncIterator[Host]:
    """The product's turn worker on a queue of its own, and a host that sends to it."""
    queue = f"benchmark-{uuid.uuid4()}"
    settings = WorkerSettings(graceful_shutdown_s=1)
    async with turn_worker(client, bodies, recorder, settings, task_queue=queue):
        yield Host(client, task_queue=queue)


async def answered(host: Host, request: TurnRequest) -> TurnResult:
    result = await host.send(request)
    if not isinstance(result, TurnResult):
        raise RuntimeError(f"the turn was not answered by a worker: {result}")
    return result


def improved(result: TurnResult) -> TurnResult:
    """Refuse to time a turn that left stages out: it would look fast.

    Raises:
        RuntimeError: the turn did not go through all five stages.
    """
    if result.disposition is not Disposition.REGENERATED:
        raise RuntimeError(f"a measured turn ended as {result.disposition.value}/{result.reason.value}")
    return result


async def _with_records(store: Store, principal: Principal) -> Sequence[RecordRef]:
    lines = [RecordWrite(id=f"r{at}", text=f"{RECORD_TEXT} {at}.") for at in range(RECORDS_A_TENANT)]
    await store.import_lines(principal, lines, actor="benchmark", at=utc_now())
    return [record.ref for record in await store.records(principal)]
