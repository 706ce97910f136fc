"""A peer's side of the line protocol: one JSON object a line, in and out, until the other end closes.

Out first: `{"versions": {...}}` once ready. Then for each `{"stage_ms": 50, "turns": 10}` one `{"walls_ms": [...]}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version

from five_stages import PACE

Turn = Callable[[int], Awaitable[object]]
"""Runs one turn to its answer; the number is unique in this process."""


async def answer_rounds(turn: Turn, packages: Sequence[str]) -> None:
    _say({"versions": {name: version(name) for name in packages}})
    loop, number = asyncio.get_running_loop(), 0
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        PACE.stage_ms = asked["stage_ms"]
        walls_ms: list[float] = []
        for _ in range(asked["turns"]):
            number += 1
            started = time.perf_counter()
            await turn(number)
            walls_ms.append((time.perf_counter() - started) * 1000)
        _say({"walls_ms": walls_ms})


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
