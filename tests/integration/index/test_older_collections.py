"""Collections that earlier and later releases made: brought up to date before anybody asks them, or refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from retold.index.collection import MISSING_IN_SCHEMA_1, SCHEMA
from retold.index.edge import EdgeIndex, read_folder
from retold.index.points import passage, point
from retold.index.port import IndexPoint, IndexUnavailableError, RecordIndex
from retold.index.server import ServerIndex
from retold.models.embedding.hashing import HashingEmbedder
from tests.integration.index.qdrant_stand_in import QdrantStandIn
from tests.integration.index.records import ANN, all_generators, ids, record

_collections = itertools.count()


async def of_schema_1(embedder: HashingEmbedder, texts: Sequence[str]) -> list[IndexPoint]:
    """Points as the first release wrote them."""
    stored = [record(text) for text in texts]
    vectors = await embedder.embed_passages([passage(each) for each in stored])
    points = [point(each, vector) for each, vector in zip(stored, vectors, strict=True)]
    return [
        IndexPoint(
            ref=each.ref,
            dense=each.dense,
            text=each.text,
            payload={key: value for key, value in each.payload.items() if key not in MISSING_IN_SCHEMA_1},
        )
        for each in points
    ]


async def check_found(index: RecordIndex, embedder: HashingEmbedder, expected: int) -> None:
    dense, lexical, _ = await index.search(await all_generators(embedder, "Fact", limit=5_000))
    assert len(ids(dense)) == len(ids(lexical)) == expected
    assert all(set(MISSING_IN_SCHEMA_1) <= set(each.payload) for each in await index.points_of(ANN))


async def test_a_folder_of_the_first_release_is_brought_up_to_date(tmp_path: Path, embedder: HashingEmbedder) -> None:
    made = EdgeIndex(tmp_path / "index")
    await made.ensure(embedder.identity)
    await made.upsert(await of_schema_1(embedder, ["Fact one", "Fact two"]))
    await made.aclose()
    (tmp_path / "index" / "embedder.json").write_text(embedder.identity.model_dump_json())

    for _ in range(2):
        opened = EdgeIndex(tmp_path / "index")
        await opened.ensure(embedder.identity)
        await check_found(opened, embedder, 2)
        await opened.aclose()
    description = read_folder(tmp_path / "index")
    assert description is not None
    assert description.schema_version == SCHEMA


async def test_a_collection_of_the_first_release_is_brought_up_to_date(
    server: QdrantStandIn, embedder: HashingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retold.index.server.UPGRADE_PAGE", 100)
    name = f"older-{next(_collections)}"
    made = ServerIndex(server.url, name)
    await made.ensure(embedder.identity)
    await made.upsert(await of_schema_1(embedder, [f"Fact number {n}" for n in range(250)]))
    server.answer("describe", name, {"metadata": {"schema_version": 1}})
    await made.aclose()

    opened, again = ServerIndex(server.url, name), ServerIndex(server.url, name)
    before = server.calls["set payload"]
    await opened.ensure(embedder.identity)
    assert server.calls["set payload"] - before == 6, "two keys, three pages each"
    await check_found(opened, embedder, 250)
    await again.ensure(embedder.identity)
    assert server.calls["set payload"] - before == 6, "it is up to date: nothing is written"
    for each in (opened, again):
        await each.aclose()


async def test_what_a_later_release_made_is_refused(
    tmp_path: Path, server: QdrantStandIn, embedder: HashingEmbedder
) -> None:
    name = f"later-{next(_collections)}"
    for index in (EdgeIndex(tmp_path / "index"), ServerIndex(server.url, name)):
        await index.ensure(embedder.identity)
        await index.aclose()
    later = {"embedder": embedder.identity.model_dump(), "schema_version": SCHEMA + 1, "unheard_of": True}
    (tmp_path / "index" / "embedder.json").write_text(json.dumps(later))
    server.answer("describe", name, {"metadata": later})

    for index in (EdgeIndex(tmp_path / "index"), ServerIndex(server.url, name)):
        with pytest.raises(IndexUnavailableError, match=f"schema {SCHEMA + 1}"):
            await index.ensure(embedder.identity)
        await index.aclose()
