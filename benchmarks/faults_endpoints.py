"""What a worker under fault talks to, on loopback and breakable: models, a Qdrant server, a collector.

They run in the rig's process, which nobody kills, and change their behaviour between one request and the next.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.ports import ANSWER, GAP
from tests.integration.index.qdrant_stand_in import Fault, QdrantStandIn

Json = dict[str, Any]

PLANNER, JUDGE, DRAFT, REGENERATION = "planner", "judge", "draft", "regeneration"
_ROLE_OF_SCHEMA = {"gap_plan": PLANNER, "admission": JUDGE}
_TAKES_S = {PLANNER: 0.05, JUDGE: 0.05, DRAFT: 0.1, REGENERATION: 0.1}


@dataclass
class ModelEndpoint:
    """An OpenAI-compatible endpoint: plans one gap, admits the first candidate, answers the rest.

    What it is asked for by a response schema is a plan or a judgement; with memory in its prompt, a regeneration.
    """

    hangs: set[str] = field(default_factory=set)
    """Roles whose requests are taken and never answered."""
    refuses: bool = False
    """Whether it answers every request with 503."""
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _request(reader)) is not None:
                role = _role(request)
                if role in self.hangs:
                    await reader.read(1)  # until the caller hangs up
                    return
                await asyncio.sleep(_TAKES_S[role])
                writer.write(_http(503, {"error": {"message": "overloaded"}}) if self.refuses else _chat(role, request))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def model_endpoint() -> AsyncIterator[ModelEndpoint]:
    models = ModelEndpoint()
    server = await asyncio.start_server(models.serve, "127.0.0.1", 0, limit=1 << 20)
    models.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield models
    finally:
        server.close()


class BreakableQdrant(QdrantStandIn):
    """Searches fail in one way until they are mended; every other call goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.searches: Fault | None = None
        self.finds_nothing = False
        self._server.handle_error = _hung_up  # type: ignore[assignment]

    def next_fault(self, kind: str) -> Fault | None:
        super().next_fault(kind)
        return self.searches if kind == "query" else None

    def answer(self, kind: str, collection: str, body: Json) -> object:
        if kind == "query" and self.finds_nothing:
            return [{"points": []} for _ in body["searches"]]
        return super().answer(kind, collection, body)


def _hung_up(*_: object) -> None:
    """A caller that gave up is what a slow server is for; the library would print a traceback of each."""
    if not isinstance(sys.exc_info()[1], ConnectionError):
        traceback.print_exc()


@contextmanager
def breakable_qdrant() -> Iterator[BreakableQdrant]:
    running = BreakableQdrant()
    try:
        yield running
    finally:
        running.close()


@dataclass
class Collector:
    """An OTLP endpoint: takes what it is sent, takes it and never answers, or is not there."""

    port: int
    requests: int = 0
    hangs: bool = False
    _server: asyncio.Server | None = None
    _callers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 24)

    async def be_gone(self) -> None:
        """The port refuses."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for caller in self._callers:
            caller.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers.add(writer)
        try:
            while await _request(reader, as_json=False) is not None:
                self.requests += 1
                if self.hangs:
                    await reader.read(1)
                    return
                writer.write(_http(200, {}))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self._callers.discard(writer)
            writer.close()


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    running = Collector(free_port())
    await running.listen()
    try:
        yield running
    finally:
        await running.be_gone()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


async def _request(reader: asyncio.StreamReader, *, as_json: bool = True) -> Json | None:
    """The body of the next request; None when the caller has hung up."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    body = await reader.readexactly(int(length.group(1)) if length else 0)
    return json.loads(body) if as_json else {}


def _role(request: Json) -> str:
    schema = request.get("response_format", {}).get("json_schema", {}).get("name")
    if schema in _ROLE_OF_SCHEMA:
        return _ROLE_OF_SCHEMA[schema]
    return REGENERATION if "<memory-" in request["messages"][0]["content"] else DRAFT


def _chat(role: str, request: Json) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": _said(role, request)}}
    usage = {"prompt_tokens": 200, "completion_tokens": 100, "total_tokens": 300}
    return _http(
        200,
        {"id": "c", "object": "chat.completion", "created": 1, "model": "faults", "choices": [choice], "usage": usage},
    )


def _said(role: str, request: Json) -> str:
    if role == PLANNER:
        return json.dumps({"gaps": [GAP.model_dump(mode="json")]})
    if role == JUDGE:
        lines = [line for line in request["messages"][-1]["content"].splitlines() if line.startswith('{"id": ')]
        ids = [json.loads(line)["id"] for line in lines]
        verdicts = [{"id": id, "verdict": "insufficient" if at else "helpful"} for at, id in enumerate(ids)]
        return json.dumps({"admitted": ids[:1], "verdicts": verdicts})
    return ANSWER


def _http(status: int, body: Json) -> bytes:
    encoded = json.dumps(body).encode()
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(encoded)}\r\n\r\n".encode()
        + encoded
    )
