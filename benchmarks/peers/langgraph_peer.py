"""The turn as a LangGraph graph: a checkpoint after every step, written before the next one starts ("sync").

langgraph_peer.py DATABASE_URL      (postgresql://..., or sqlite:///file)
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import five_stages
from answering import answer_rounds
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool


class State(TypedDict, total=False):
    text: str
    draft: str
    gaps: list[dict[str, str]]
    candidates: list[dict[str, object]]
    admitted: list[str]
    answer: str


async def draft(state: State) -> State:
    return {"draft": await five_stages.draft(state["text"])}


async def plan(state: State) -> State:
    return {"gaps": await five_stages.plan(state["text"])}


async def retrieve(state: State) -> State:
    return {"candidates": await five_stages.retrieve(state["gaps"])}


async def admit(state: State) -> State:
    return {"admitted": await five_stages.admit(state["text"], state["draft"], state["candidates"])}


async def regenerate(state: State) -> State:
    return {"answer": await five_stages.regenerate(state["text"], state["admitted"])}


def graph(saver: BaseCheckpointSaver[Any]) -> Any:
    builder = StateGraph(State)
    # A node may not be called like a key of the state, hence the verbs.
    builder.add_node("write_draft", draft)
    builder.add_node("plan_gaps", plan)
    builder.add_node("retrieve", retrieve)
    builder.add_node("admit", admit)
    builder.add_node("regenerate", regenerate)
    builder.add_edge(START, "write_draft")
    builder.add_edge(START, "plan_gaps")
    builder.add_edge(["write_draft", "plan_gaps"], "retrieve")
    builder.add_edge("retrieve", "admit")
    builder.add_edge("admit", "regenerate")
    builder.add_edge("regenerate", END)
    return builder.compile(checkpointer=saver)


@asynccontextmanager
async def checkpoints(database_url: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    saver: AsyncSqliteSaver | AsyncPostgresSaver
    if database_url.startswith("sqlite:///"):
        async with AsyncSqliteSaver.from_conn_string(database_url.removeprefix("sqlite:///")) as saver:
            await saver.setup()
            yield saver
        return
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(database_url, kwargs=options, open=False, max_size=8) as pool:
        saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
        await saver.setup()
        yield saver


async def main(database_url: str) -> None:
    async with checkpoints(database_url) as saver:
        turn = graph(saver)

        async def one(number: int) -> object:
            thread = {"configurable": {"thread_id": str(uuid.uuid4())}}
            return await turn.ainvoke({"text": five_stages.TEXT}, thread, durability="sync")

        await answer_rounds(one, ["langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
