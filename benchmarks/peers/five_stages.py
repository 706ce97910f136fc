"""What every peer runs: the five stages of a turn, each `stage_ms` long, with results of the size a turn's have."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

TEXT = "What should I cook for the dinner with my team on Friday, and when do we have to start?"
ANSWER = "A vegetable lasagne can be prepared the evening before and feeds eight. " * 6


@dataclass
class Pace:
    """How long each stage takes; changed between rounds."""

    stage_ms: float = 0.0

    async def pause(self) -> None:
        if self.stage_ms > 0:
            await asyncio.sleep(self.stage_ms / 1000)


PACE = Pace()


async def draft(text: str) -> str:
    await PACE.pause()
    return ANSWER


async def plan(text: str) -> list[dict[str, str]]:
    await PACE.pause()
    return [{"category": "constraint", "query": "what the team may not eat"}]


async def retrieve(gaps: list[dict[str, str]]) -> list[dict[str, object]]:
    await PACE.pause()
    return [{"id": f"record-{number}", "version": 1, "score": 0.5} for number in range(2)]


async def admit(text: str, draft: str, candidates: list[dict[str, object]]) -> list[str]:
    await PACE.pause()
    return [str(candidates[0]["id"])]


async def regenerate(text: str, admitted: list[str]) -> str:
    await PACE.pause()
    return ANSWER
