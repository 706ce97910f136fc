"""A host in one file, to copy.

    retold dev --serve                                           # a stack to talk to, in another terminal
    python examples/reference_host.py --user ada
    python examples/reference_host.py --generate-on my-host      # your own worker answers: see host_worker_python/

Your user interface goes where `typed` stands, your model where `without_memory` stands.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

from retold.client import FallbackResult, Host, HostGeneration, Principal, RetoldError, connect
from retold.contracts.turn import TurnRequest
from retold.ending import end_process

DEADLINE_MS = 60_000
"""How long a user waits at most, whatever is wrong."""


async def without_memory(request: TurnRequest) -> str:
    """Answer while Temporal is away. Ask your model here; nothing is remembered or recorded meanwhile."""
    return f"(Memory is out of reach. You said: {request.text})"


async def chat(
    host: Host,
    principal: Principal,
    said: AsyncIterator[str],
    *,
    budget_ms: int | None,
    generation: HostGeneration | None = None,
) -> None:
    """One session: a turn for everything that is said, then its end.

    Args:
        budget_ms: what memory may add after the draft is there; at 0 every answer is the draft, None does not hurry.
        generation: the queue of your own worker, if it generates; None for the deployment's model.
    """
    session, remembered = uuid4().hex, False
    async for text in said:
        # One id a turn. Should this process die, the same id sent again picks up the same answer.
        turn = uuid4().hex
        try:
            result = await host.turn(
                principal,
                session,
                turn,
                text,
                public_context=None,  # what your model is shown anyway: documents, the conversation so far
                budget_ms=budget_ms,
                host_generation=generation,
                deadline_ms=DEADLINE_MS,
            )
        except RetoldError as error:
            # Each kind is a type of its own, to be caught one by one: a late turn, say, can be sent again.
            print(f"! {error}")
            continue
        print(result.answer)
        if isinstance(result, FallbackResult):
            print(f"  [no memory: {result.why:.60}]")
            continue
        remembered = True
        # Shown, so that a user can say "forget that": retold records delete <id>
        delivered = ", ".join(ref.id for ref in result.delivered) or "nothing"
        print(f"  [{result.disposition.value}: {delivered} from memory; decision {result.decision_id}]")
    if remembered:
        await host.end_session(principal, session)


async def typed() -> AsyncIterator[str]:
    while True:
        try:
            line = await asyncio.get_running_loop().run_in_executor(None, input, "> ")
        except EOFError:
            return
        if line.strip():
            yield line


async def main() -> None:
    options = argparse.ArgumentParser(description="Chat with a memory that helps or stays silent. Ctrl-D ends.")
    options.add_argument("--tenant", default="acme")
    options.add_argument("--user", default="ada")
    options.add_argument("--budget-ms", type=int, default=3_000)
    options.add_argument("--generate-on", metavar="QUEUE", help="the task queue of your own worker")
    chosen = options.parse_args()
    generation = None
    if chosen.generate_on:
        generation = HostGeneration(task_queue=chosen.generate_on, heartbeat_timeout_ms=2_000)
    async with connect(fallback=without_memory) as host:
        await chat(
            host, Principal(tenant=chosen.tenant, user=chosen.user), typed(),
            budget_ms=chosen.budget_ms, generation=generation,
        )  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
    end_process(0)
