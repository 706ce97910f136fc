"""The turn as a DBOS workflow: every stage a step, its result in the system database before the next one starts.

dbos_peer.py DATABASE_URL
"""

from __future__ import annotations

import asyncio
import sys
import uuid

import five_stages
from answering import answer_rounds
from dbos import DBOS, SetWorkflowID


@DBOS.step()
async def draft(text: str) -> str:
    return await five_stages.draft(text)


@DBOS.step()
async def plan(text: str) -> list[dict[str, str]]:
    return await five_stages.plan(text)


@DBOS.step()
async def retrieve(gaps: list[dict[str, str]]) -> list[dict[str, object]]:
    return await five_stages.retrieve(gaps)


@DBOS.step()
async def admit(text: str, drafted: str, candidates: list[dict[str, object]]) -> list[str]:
    return await five_stages.admit(text, drafted, candidates)


@DBOS.step()
async def regenerate(text: str, admitted: list[str]) -> str:
    return await five_stages.regenerate(text, admitted)


@DBOS.workflow()
async def turn(text: str) -> str:
    drafted, gaps = await asyncio.gather(draft(text), plan(text))
    candidates = await retrieve(gaps)
    admitted = await admit(text, drafted, candidates)
    return await regenerate(text, admitted)


async def main(database_url: str) -> None:
    DBOS(config={"name": "benchmark", "system_database_url": database_url, "log_level": "ERROR"})
    DBOS.launch()

    async def one(number: int) -> str:
        with SetWorkflowID(str(uuid.uuid4())):
            return await turn(five_stages.TEXT)

    try:
        await answer_rounds(one, ["dbos"])
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
