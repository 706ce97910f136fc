"""A model provider on the loopback interface that answers whatever a test tells it to, misbehaviour included.

It speaks just enough HTTP/1.1 for the chat completions and the messages protocol, counts every request, and notices
when a client hangs up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Reply = Callable[[asyncio.StreamWriter], Any]
"""Writes one response, or does something else to the connection."""


@dataclass
class Provider:
    """What came in, and what goes out next."""

    url: str = ""
    reply: bytes | None = None
    """A whole HTTP response; None: nothing is ever answered."""
    drip_s: float | None = None
    """Seconds between single bytes of the body; None: all at once."""
    reset: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    received: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await _head(reader):
                path, length = head
                self.requests.append(json.loads(await reader.readexactly(length)))
                self.paths.append(path)
                self.received.set()
                if self.reset:
                    writer.transport.abort()
                    return
                await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.reply is None:
            await self._until_hung_up(reader)
            return
        if self.drip_s is None:
            writer.write(self.reply)
            await writer.drain()
            return
        watch = asyncio.create_task(self._until_hung_up(reader))
        for byte in self.reply:
            if self.hung_up.is_set():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(self.drip_s)
        watch.cancel()

    async def _until_hung_up(self, reader: asyncio.StreamReader) -> None:
        if not await reader.read(1):
            self.hung_up.set()


async def _head(reader: asyncio.StreamReader) -> tuple[str, int] | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode("latin-1").split("\r\n")
    lengths = [line.partition(":")[2] for line in lines if line.lower().startswith("content-length:")]
    return lines[0].split(" ")[1], int(lengths[0]) if lengths else 0


@asynccontextmanager
async def running() -> AsyncIterator[Provider]:
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    provider.url = f"http://{host}:{port}"
    try:
        yield provider
    finally:
        server.close()


def http(status: int, body: str, headers: dict[str, str] | None = None) -> bytes:
    encoded = body.encode()
    lines = {"content-type": "application/json", "content-length": str(len(encoded)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + encoded


def chat(text: str | None, *, finish: str = "stop", model: str = "m-2026", **message: Any) -> bytes:
    """A chat completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
    return http(200, json.dumps({**body, "usage": usage}))


def called(name: str, *arguments: str) -> bytes:
    """A chat completion that calls the tool once for each of the arguments."""
    calls = [
        {"id": f"call{index}", "type": "function", "function": {"name": name, "arguments": text}}
        for index, text in enumerate(arguments)
    ]
    return chat(None, finish="tool_calls", tool_calls=calls)


def claude(*content: dict[str, Any], stop: str = "end_turn") -> bytes:
    """A message of the Anthropic protocol."""
    usage = {"input_tokens": 11, "output_tokens": 7}
    body = {"id": "m1", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": stop}
    return http(200, json.dumps({**body, "stop_sequence": None, "content": list(content), "usage": usage}))


def failure(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> bytes:
    return http(status, json.dumps({"error": {"message": message, "type": code, "code": code}}), headers)
