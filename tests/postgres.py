"""One PostgreSQL for the test session, and a fresh database in it for whoever asks.

From a wheel; from an image with RETOLD_TEST_STACK=containers.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from retold.store.engine import open_engine
from retold.store.migrations import migrate
from tests.docker_engine import in_containers, postgres_in_a_container

SERVER = Path(__file__).parents[1] / "benchmarks" / "peers" / "postgres_server.py"
HASTE = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "log_min_messages=fatal", "-c", "deadlock_timeout=50ms")
"""What a test writes need not survive the machine."""
TEMPLATE = "retold_template"
STARTS_WITHIN_S = 20


class Postgres:
    """Databases are copied from a migrated one: that takes a tenth of migrating each."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = count()
        self._admin = _connected(url)

    @property
    def libpq_url(self) -> str:
        return self._url

    async def prepare(self) -> None:
        self._admin.execute(f"CREATE DATABASE {TEMPLATE}")
        engine = open_engine(self.url_of(TEMPLATE))
        await migrate(engine)
        engine.dispose()

    def url_of(self, database: str) -> str:
        return self._url.rsplit("/", 1)[0].replace("postgresql://", "postgresql+psycopg://") + f"/{database}"

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """The SQLAlchemy URL of a database of one's own; dropped at the end, whoever is still connected."""
        name = f"retold_{next(self._numbers)}"
        template = TEMPLATE if migrated else "template0"
        # A third of the time of the default strategy, which writes every page into the log too.
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        try:
            yield self.url_of(name)
        finally:
            self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        self._admin.close()


def _connected(url: str) -> psycopg.Connection:
    """It takes connections a moment before it is ready for them, and refuses them until then."""
    until = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            return psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    with postgres_in_a_container() if in_containers() else _postgres_from_a_wheel() as url:
        postgres = Postgres(url)
        try:
            yield postgres
        finally:
            postgres.close()


@contextmanager
def _postgres_from_a_wheel() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(SERVER), str(port), *HASTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        said = server.stdout.readline()
        assert said, "PostgreSQL did not start: see the lines above"
        yield json.loads(said)["url"]
    finally:
        server.stdin.close()
        server.wait(20)
