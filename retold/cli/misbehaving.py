"""A model endpoint that is really broken: for the demo, which shows what a turn does about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

Misbehaviour = Literal["hangs", "slow", "prose"]

SLOW_MS = 3_000
_PROSE = "Certainly! I would be happy to look at these memories; they all seem rather interesting to me."


@asynccontextmanager
async def misbehaving_endpoint(misbehaviour: Misbehaviour) -> AsyncIterator[str]:
    """An OpenAI-compatible base URL on loopback that accepts every request and then hangs, dawdles or chats."""
    open_connections: set[asyncio.StreamWriter] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.add(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
            if misbehaviour == "hangs":
                await reader.read()  # until the caller gives up
                return
            if misbehaviour == "slow":
                await asyncio.sleep(SLOW_MS / 1000)
            writer.write(_completion(_PROSE))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the caller gave up, as it should
        finally:
            open_connections.discard(writer)
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for writer in list(open_connections):
            writer.close()


def _completion(text: str) -> bytes:
    body = json.dumps(
        {
            "id": "chatcmpl-demo",
            "object": "chat.completion",
            "created": 0,
            "model": "chatty",
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}},
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    ).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
