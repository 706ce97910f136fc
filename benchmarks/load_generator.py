"""Arrivals that do not wait for answers, from a process of their own.

    python -m benchmarks.load_generator ORDERS   # ORDERS: `Orders` as JSON

A line of stdin is a `Phase` as JSON; its turns arrive as a Poisson process, each at the moment drawn for it whether or
not those before it were answered. `sent` on stdout says that the phase's last turn is on its way; the line `finish`
waits for what is still under way. Every turn ends as one line of the log, an `Outcome`.

Arrivals are counted from when they were due: a generator that falls behind makes its turns look slower, never faster.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from typing import Annotated

from pydantic import Field
from temporalio.client import Client
from temporalio.service import GrpcCompression, RPCError

from benchmarks.ports import TEXT
from retold.client import Host, RetoldError, TurnResult, plugins
from retold.client.runtime import core_runtime
from retold.client.tracing import install_tracing
from retold.contracts._base import Contract
from retold.contracts.identity import turn_workflow_id
from retold.contracts.turn import Durability, Principal, TurnOptions, TurnRequest
from retold.ending import end_process

TURNS_A_SESSION = 10
RAMP_S = 1.0
"""Over which the callers of a closed loop begin: all at once would be a test of the first second."""
SENT, FINISHED, FINISH = b"sent\n", b"finished\n", b"finish"
ANSWERS_WITHIN_S = 120.0
"""After the last arrival. As long as a turn may run."""

Budget = int | None


class Orders(Contract):
    address: str
    task_queue: str
    log: Path
    run: str
    tenants: int
    budgets_ms: tuple[Budget, ...]
    """Drawn with equal chance for every turn; None: none."""
    seed: int = 2


class Phase(Contract):
    name: str
    seconds: Annotated[float, Field(gt=0)]
    turns_per_s: Annotated[float, Field(gt=0)] | None = None
    """None: a closed loop of `lanes` callers instead, to find out what the worker can do."""
    lanes: int = 1


class Outcome(Contract):
    """What a host saw of one turn."""

    phase: str
    workflow_id: str
    session_id: str
    budget_ms: Budget
    due_at: float
    """Seconds since the epoch, as the others."""
    sent_at: float
    ended_at: float
    decision_id: str | None = None
    disposition: str = ""
    reason: str = ""
    recorded: bool = True
    error: str = ""
    """The type of the error the host got instead of an answer."""


class Generator:
    """Draws arrivals and budgets, and writes down how each turn ended."""

    def __init__(self, orders: Orders, host: Host, log: int) -> None:
        self._orders = orders
        self._host = host
        self._log = log
        self._chance = random.Random(orders.seed)
        self._number = 0
        self._under_way: set[asyncio.Task[None]] = set()

    async def arrivals(self, phase: Phase) -> None:
        """Returns once the last turn of the phase is on its way."""
        assert phase.turns_per_s is not None
        due = time.time()
        until = due + phase.seconds
        while (due := due + self._chance.expovariate(phase.turns_per_s)) < until:
            if (wait := due - time.time()) > 0:
                await asyncio.sleep(wait)
            sending = asyncio.create_task(self._turn(phase.name, due))
            self._under_way.add(sending)
            sending.add_done_callback(self._under_way.discard)
        await asyncio.sleep(max(0.0, until - time.time()))

    async def closed_loop(self, phase: Phase) -> None:
        """As many callers as the phase has lanes, each with its next turn when it has its answer."""
        until = time.time() + phase.seconds

        async def caller(lane: int) -> None:
            await asyncio.sleep(RAMP_S * lane / phase.lanes)
            while (now := time.time()) < until:
                await self._turn(phase.name, now)

        await asyncio.gather(*(caller(lane) for lane in range(phase.lanes)))

    async def finish(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=ANSWERS_WITHIN_S)

    async def _turn(self, phase: str, due: float) -> None:
        request = self._drawn()
        budget = request.options.latency_budget_ms
        outcome = Outcome(
            phase=phase,
            workflow_id=turn_workflow_id(request.principal, request.session_id, request.turn_id),
            session_id=request.session_id,
            budget_ms=budget if isinstance(budget, int) else None,
            due_at=due,
            sent_at=time.time(),
            ended_at=0,
        )
        try:
            result = await self._host.send(request)
        except (RetoldError, RPCError) as error:
            outcome = outcome.model_copy(update={"error": type(error).__name__, "ended_at": time.time()})
        else:
            assert isinstance(result, TurnResult), "no fallback was given"
            outcome = outcome.model_copy(
                update={
                    "ended_at": time.time(),
                    "decision_id": result.decision_id,
                    "disposition": result.disposition.value,
                    "reason": result.reason.value,
                    "recorded": result.recorded,
                }
            )
        os.write(self._log, outcome.model_dump_json().encode() + b"\n")

    def _drawn(self) -> TurnRequest:
        number, self._number = self._number, self._number + 1
        # Neighbours in time are different users' turns: nobody speaks again before they were answered.
        tenants = self._orders.tenants
        conversation = number // (TURNS_A_SESSION * tenants) * tenants + number % tenants
        return TurnRequest(
            principal=Principal(tenant=f"tenant-{conversation % tenants}", user="user"),
            session_id=f"{self._orders.run}-{conversation}",
            turn_id=str(number),
            text=TEXT,
            options=TurnOptions(
                latency_budget_ms=self._chance.choice(self._orders.budgets_ms), durability=Durability.AUTO
            ),
        )


async def generate(orders: Orders) -> None:
    """Do what stdin says until it ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    log = os.open(orders.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    with install_tracing("retold-load-generator"):
        client = await Client.connect(
            orders.address, plugins=plugins(), runtime=core_runtime(), grpc_compression=GrpcCompression.NONE
        )
        generator = Generator(orders, Host(client, task_queue=orders.task_queue), log)
        while line := (await lines.readline()).strip():
            if line == FINISH:
                await generator.finish()
                os.write(sys.stdout.fileno(), FINISHED)
                continue
            phase = Phase.model_validate_json(line)
            await (generator.closed_loop if phase.turns_per_s is None else generator.arrivals)(phase)
            os.write(sys.stdout.fileno(), SENT)
    os.close(log)


if __name__ == "__main__":
    asyncio.run(generate(Orders.model_validate_json(sys.argv[1])))
    end_process(0)
