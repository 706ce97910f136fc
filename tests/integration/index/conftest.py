"""The engines one contract is run against: embedded, a server behind HTTP, and a real server in a container."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from retold.index.edge import EdgeIndex
from retold.index.edge_home import EdgeHome
from retold.index.generations import IndexHome
from retold.index.port import RecordIndex
from retold.index.server import ServerIndex
from retold.index.server_home import ServerHome
from retold.models.embedding.hashing import HashingEmbedder
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from tests.docker_engine import qdrant_in_a_container
from tests.integration.index.qdrant_stand_in import QdrantStandIn, stand_in

_collections = itertools.count()


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder()


@pytest.fixture(scope="session")
def server() -> Iterator[QdrantStandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture(scope="session")
def container_url() -> Iterator[str]:
    with qdrant_in_a_container() as url:
        yield url


@pytest.fixture(params=["edge", "server", pytest.param("container", marks=pytest.mark.docker)])
async def index(
    request: pytest.FixtureRequest, tmp_path: Path, embedder: HashingEmbedder
) -> AsyncIterator[RecordIndex]:
    """An empty index, made for the hashing embedder."""
    opened = _engine(request, tmp_path)
    await opened.ensure(embedder.identity)
    yield opened
    await opened.aclose()


def _engine(request: pytest.FixtureRequest, tmp_path: Path) -> RecordIndex:
    collection = f"contract-{os.getpid()}-{next(_collections)}"
    match request.param:
        case "edge":
            return EdgeIndex(tmp_path / "index")
        case "server":
            return ServerIndex(request.getfixturevalue("server").url, collection)
        case _:
            return ServerIndex(request.getfixturevalue("container_url"), collection)


MakeHome = Callable[[], IndexHome]


@pytest.fixture(params=["edge", "server", pytest.param("container", marks=pytest.mark.docker)])
def make_home(request: pytest.FixtureRequest, tmp_path: Path) -> MakeHome:
    """Opens the same generations again and again, as one process after the other would."""
    collection = f"home-{os.getpid()}-{next(_collections)}"
    match request.param:
        case "edge":
            return lambda: EdgeHome(tmp_path / "index")
        case "server":
            url = request.getfixturevalue("server").url
        case _:
            url = request.getfixturevalue("container_url")
    return lambda: ServerHome(url, collection)


@pytest.fixture(scope="session")
async def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "migrated.db"
    engine = open_engine(f"sqlite:///{path}")
    await migrate(engine)
    engine.dispose()
    return path


@pytest.fixture
async def store(tmp_path: Path, migrated_file: Path) -> AsyncIterator[Store]:
    """A store on a file of its own, `retold.db` in the test's directory."""
    shutil.copy(migrated_file, tmp_path / "retold.db")
    opened = Store(open_engine(f"sqlite:///{tmp_path / 'retold.db'}"))
    yield opened
    await opened.close()
