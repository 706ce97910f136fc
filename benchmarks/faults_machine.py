"""Parts of a machine that can be taken away and given back: a PostgreSQL, a disk, a clock, an earlier version."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crash_rig import ROOT
from benchmarks.faults_endpoints import free_port
from benchmarks.peers import postgres_server
from retold.store.engine import in_a_thread

QUIET = ["-c", "log_min_messages=panic"]


@dataclass
class Postgres:
    """A real server that can be killed and comes back on what it had written."""

    cluster: postgres_server.Cluster
    port: int
    server: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        host, user, name = postgres_server.HOST, postgres_server.USER, postgres_server.DATABASE
        return f"postgresql+psycopg://{user}@{host}:{self.port}/{name}"

    async def kill(self) -> None:
        """kill -9 of all of its processes."""
        os.killpg(self.server.pid, signal.SIGKILL)
        await in_a_thread(self.server.wait)

    async def restart(self) -> None:
        self.server = await in_a_thread(lambda: postgres_server.started(self.cluster, self.port, QUIET))


@asynccontextmanager
async def postgres() -> AsyncIterator[Postgres]:
    """As it is installed: what it says it has written survives its death."""
    with tempfile.TemporaryDirectory(prefix="retold-faults-postgres-") as folder:
        cluster, port = await in_a_thread(lambda: postgres_server.prepared(Path(folder))), free_port()
        server = await in_a_thread(lambda: postgres_server.started(cluster, port, QUIET))
        running = Postgres(cluster, port, server)
        try:
            yield running
        finally:
            if running.server.poll() is None:
                await in_a_thread(lambda: postgres_server.stopped(running.server))


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[str | None]:
    """A file system of its own, for as long as the block lasts; instead of None, why there is none."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        yield f"no file system could be mounted ({mounted.stderr.strip() or 'not root'})"
        return
    try:
        yield None
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@dataclass(frozen=True)
class MovedClock:
    """The wall clock of one worker process (`benchmarks.faults_moved_clock`)."""

    file: Path

    def by(self, seconds: int) -> None:
        anew = self.file.with_suffix(".anew")
        anew.write_text(f"{seconds}\n")
        anew.replace(self.file)  # whole or not at all: the worker reads it at any moment


def earlier_checkout(folder: Path, revision: str) -> str:
    """An earlier commit's files; its full name.

    Raises:
        RuntimeError: this is no git checkout, or has no such commit.
    """
    named = subprocess.run(["git", "rev-parse", "--verify", revision], cwd=ROOT, capture_output=True, text=True)
    if named.returncode != 0:
        raise RuntimeError(named.stderr.strip() or "git does not answer")
    folder.mkdir()
    archived = subprocess.Popen(["git", "archive", named.stdout.strip()], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archived.stdout, check=True)
    if archived.wait() != 0:
        raise RuntimeError(f"git archive ended with {archived.returncode}")
    return named.stdout.strip()


def loaded_from(checkout: Path) -> str:
    """Says which package such a worker imports: a test of two versions that runs one twice tests nothing."""
    found = subprocess.run(
        [sys.executable, "-c", "import retold; print(retold.__file__)"],
        cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    if not Path(found.stdout.strip()).is_relative_to(checkout):
        raise RuntimeError(f"the earlier version would have imported {found.stdout.strip()}")
    return "the earlier one runs on its own retold"
