"""What a server's bad days become: a typed error at once for a search, patience with 429 alone for a write."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from retold.index import server as server_module
from retold.index.port import DimensionMismatchError, EmbedderMismatchError, IndexUnavailableError
from retold.index.server import ServerIndex
from retold.models.embedding.hashing import HashingEmbedder
from tests.integration.index.qdrant_stand_in import Fault, QdrantStandIn
from tests.integration.index.records import ANN, all_generators, put, record

TEA = "Ann drinks green tea every morning"

_collections = itertools.count()


@pytest.fixture
async def index(server: QdrantStandIn, embedder: HashingEmbedder) -> AsyncIterator[ServerIndex]:
    opened = ServerIndex(server.url, f"faults-{next(_collections)}", timeout_s=1)
    await opened.ensure(embedder.identity)
    await put(opened, embedder, record(TEA))
    yield opened
    await opened.aclose()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault.SERVER_ERROR, "500.*out of disk"),
        (Fault.BUSY, "overloaded"),
        (Fault.SLOW, "Timeout"),
        (Fault.RESET, "no usable answer"),
        (Fault.GARBAGE, "no usable answer"),
    ],
)
async def test_a_failing_search_is_typed_and_tried_once(
    index: ServerIndex, server: QdrantStandIn, embedder: HashingEmbedder, fault: Fault, said: str
) -> None:
    queries = await all_generators(embedder, TEA)
    server.fail_next("query", fault)
    before = server.calls["query"]

    with pytest.raises(IndexUnavailableError, match=said):
        await asyncio.wait_for(index.search(queries), 10)

    assert server.calls["query"] == before + 1
    assert len((await index.search(queries))[0]) == 1


async def test_a_busy_server_is_asked_again_for_a_write(
    index: ServerIndex, server: QdrantStandIn, embedder: HashingEmbedder
) -> None:
    server.fail_next("upsert", Fault.BUSY, Fault.BUSY)
    before = server.calls["upsert"]
    await put(index, embedder, record("Ann has a cat"))
    assert server.calls["upsert"] == before + 3
    assert await index.count(ANN) == 2


async def test_a_server_that_stays_busy_ends_the_write(
    index: ServerIndex, server: QdrantStandIn, embedder: HashingEmbedder
) -> None:
    server.fail_next("upsert", *[Fault.BUSY] * 4)
    with pytest.raises(IndexUnavailableError, match="overloaded"):
        await put(index, embedder, record("Ann has a cat"))


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.RESET, Fault.GARBAGE])
async def test_a_failing_write_is_not_repeated(
    index: ServerIndex, server: QdrantStandIn, embedder: HashingEmbedder, fault: Fault
) -> None:
    server.fail_next("upsert", fault)
    before = server.calls["upsert"]
    with pytest.raises(IndexUnavailableError):
        await put(index, embedder, record("Ann has a cat"))
    assert server.calls["upsert"] == before + 1


async def test_large_writes_are_split_by_count_and_by_bytes(
    index: ServerIndex, server: QdrantStandIn, embedder: HashingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = server.calls["upsert"]
    await put(index, embedder, *(record(f"Fact {number}") for number in range(server_module.MAX_BATCH_POINTS + 1)))
    assert server.calls["upsert"] == before + 2

    monkeypatch.setattr(server_module, "MAX_BATCH_BYTES", 1)
    await put(index, embedder, record("One"), record("Two"), record("Three"))
    assert server.calls["upsert"] == before + 5


async def test_a_dimension_the_server_refuses_is_named_so(
    index: ServerIndex, server: QdrantStandIn, embedder: HashingEmbedder
) -> None:
    """The collection was rebuilt behind our back with another size: our own check cannot see it."""
    server.fail_next("query", Fault.WRONG_DIMENSION)
    with pytest.raises(DimensionMismatchError, match="expected dim: 4"):
        await index.search(await all_generators(embedder, TEA))


async def test_a_collection_that_names_no_embedder_is_refused(server: QdrantStandIn, embedder: HashingEmbedder) -> None:
    name = f"faults-{next(_collections)}"
    dense = {"size": embedder.identity.dimension, "distance": "Cosine"}
    server.answer("create", name, {"vectors": {"dense": dense}, "sparse_vectors": {"lexical": {}}})
    index = ServerIndex(server.url, name)
    with pytest.raises(EmbedderMismatchError, match="an unknown embedder"):
        await index.ensure(embedder.identity)
    with pytest.raises(IndexUnavailableError, match="ensure"):
        await index.search(await all_generators(embedder, TEA))
    await index.aclose()


async def test_two_workers_may_create_the_collection_at_once(server: QdrantStandIn, embedder: HashingEmbedder) -> None:
    name = f"faults-{next(_collections)}"
    workers = [ServerIndex(server.url, name) for _ in range(2)]
    server.answer("create", name, {"vectors": {}, "metadata": {"embedder": embedder.identity.model_dump()}})
    with pytest.raises(IndexUnavailableError, match="lacks the vector"):
        await workers[0].ensure(embedder.identity)
    await workers[1]._create(embedder.identity)  # it already exists: no error, checked like any other's
    for worker in workers:
        await worker.aclose()


async def test_an_unreachable_server_is_unhealthy_and_says_so(embedder: HashingEmbedder) -> None:
    index = ServerIndex("http://127.0.0.1:9", "nowhere", timeout_s=1)
    assert not await index.healthy()
    with pytest.raises(IndexUnavailableError):
        await index.ensure(embedder.identity)
    await index.aclose()
