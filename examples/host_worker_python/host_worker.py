"""A host's own worker for Retold, in Python. It needs temporalio and nothing of Retold: the contract is JSON.

    python host_worker.py --task-queue my-host    # where: TEMPORAL_ADDRESS and friends, else localhost:7233

Retold plans, retrieves, judges, keeps the deadlines and the record. This worker answers the user: once from what
was said (`generate_draft`), and once more with memory (`regenerate`) if a record was found worth it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

Json = dict[str, Any]
"""What Retold sends and gets back. Later versions may send more fields: read those you know."""

Messages = Sequence[dict[str, str]]
Model = Callable[[Messages], Awaitable[str]]

INSTRUCTIONS = "You are a helpful assistant. Answer the user's message."
BEAT = timedelta(milliseconds=200)


@dataclass(frozen=True)
class QuotingModel:
    """Stands in for your model and is none: it repeats the question and quotes the memory it was given."""

    takes_ms: int = 0
    name = "quotes-by-rule"

    async def __call__(self, messages: Messages) -> str:
        await asyncio.sleep(self.takes_ms / 1000)
        system, user = (message["content"] for message in messages)
        question = user.rpartition("\n\n")[2]
        block = re.search(r"<memory-(\w+)>\n(.*)\n</memory-\1>", system, re.DOTALL)
        if block is None:
            return f"You ask: {question} I know nothing about you that would help."
        known = [json.loads(line) for line in block[2].splitlines()]
        return f"You ask: {question} " + " ".join(f"You told me on {fact['date']}: {fact['text']}" for fact in known)


class Generation:
    """The two activities a host serves."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name

    @activity.defn(name="generate_draft")
    async def generate_draft(self, asked: Json) -> Json:
        return await self._answer(asked, prompt(asked))

    @activity.defn(name="regenerate")
    async def regenerate(self, asked: Json) -> Json:
        return await self._answer(asked, prompt(asked, asked["memory"]))

    async def _answer(self, asked: Json, messages: Messages) -> Json:
        left_s = seconds_left(asked)
        try:
            async with heartbeating(), asyncio.timeout(left_s):
                text = await self._model(messages)
        except TimeoutError:
            # Nobody waits any longer, so nothing is gained by trying again.
            raise ApplicationError(f"no answer in {left_s:.3f} s", type="LimitReached", non_retryable=True) from None
        return {"text": text, "model": self._name}


def prompt(asked: Json, memory: str = "") -> Messages:
    """The same bytes for draft and regeneration, but for the memory: so its effect is all there is to see.

    The memory comes escaped inside a delimiter drawn for this turn, with a sentence that says it is data. Put it in
    as it is. The profile is the same all session long: what comes before it and itself can stay in a prefix cache.
    """
    system = "\n\n".join(part for part in (INSTRUCTIONS, asked["profile"]) if part) + memory
    user = f"{asked['public_context']}\n\n{asked['text']}" if asked["public_context"] else asked["text"]
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def seconds_left(asked: Json) -> float:
    """How long an answer is still of use: a duration and, under a latency budget, a time after which it is not."""
    left = timedelta(milliseconds=asked["limit_ms"])
    if asked["deadline_at"] is not None:
        left = min(left, datetime.fromisoformat(asked["deadline_at"]) - datetime.now(UTC))
    return left.total_seconds()


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Beat, so that this worker's death is noticed, and so that a call Retold gave up is cancelled here too."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(BEAT.total_seconds())

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()


async def serve(task_queue: str, model: QuotingModel) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is in hand."""
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    found: Json = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
    client = await Client.connect(**found)
    generation = Generation(model, model.name)
    async with Worker(
        client,
        task_queue=task_queue,
        activities=[generation.generate_draft, generation.regenerate],
        # The SDK sends at most one beat in this time, and hears of a cancellation only in the reply to one.
        max_heartbeat_throttle_interval=BEAT,
        default_heartbeat_throttle_interval=BEAT,
        graceful_shutdown_timeout=timedelta(seconds=10),
    ):
        print(f"serving generate_draft and regenerate on {task_queue!r} at {found['target_host']}", flush=True)
        await stop.wait()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Serve a host's own generation to Retold.")
    options.add_argument("--task-queue", default="my-host")
    options.add_argument("--takes-ms", type=int, default=0, help="pretend that the model takes this long")
    chosen = options.parse_args()
    asyncio.run(serve(chosen.task_queue, QuotingModel(chosen.takes_ms)))
    # Everything is done. A thread of the SDK's core that is still leaving a callback while the interpreter finalises
    # would abort the process, and a polite end would look like a crash (temporalio/sdk-python issue 300).
    os._exit(0)
