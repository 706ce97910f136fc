"""The peers as child processes in a virtual environment of their own, asked for rounds over a pipe.

A child ends when its stdin does: with the block that started it, or with this process, however that ends. Each runs in
a session of its own, so that Ctrl-C reaches it through that pipe and not in the middle of a write.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

PEERS = Path(__file__).with_name("peers")
STARTS_WITHIN_S, ENDS_WITHIN_S, ROUND_WITHIN_S = 60.0, 15.0, 300.0


class PeerError(Exception):
    """A peer did not start, or ended before it was asked to; the message has the end of its log."""


class Child:
    """One child process that says JSON lines."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self._log = process, log

    async def said(self, within_s: float) -> dict[str, Any]:
        """Raises:
        PeerError: it ended, or said nothing in time.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within_s):
                line = await self._process.stdout.readline()
        except TimeoutError as error:
            raise PeerError(f"{self._log.stem} said nothing for {within_s:.0f} s") from error
        if not line:
            raise PeerError(f"{self._log.stem} ended: {self._log.read_text(errors='replace').strip()[-500:]}")
        message: dict[str, Any] = json.loads(line)
        return message

    async def tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class Peer:
    """A contender in another process."""

    def __init__(self, child: Child, versions: dict[str, str]) -> None:
        self._child, self.versions = child, versions

    async def round(self, stage_ms: float, turns: int) -> list[float]:
        await self._child.tell({"stage_ms": stage_ms, "turns": turns})
        walls_ms: list[float] = (await self._child.said(ROUND_WITHIN_S))["walls_ms"]
        return walls_ms


@asynccontextmanager
async def running_peers(python: Path, folder: Path) -> AsyncIterator[dict[str, Peer]]:
    """DBOS and LangGraph, each on SQLite and on PostgreSQL, by name.

    Raises:
        PeerError: one of them, or PostgreSQL, did not start.
    """
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(_child(python, "postgres_server", folder, [str(_free_port())]))
        postgres = await server.said(STARTS_WITHIN_S)
        peers: dict[str, Peer] = {}
        for name, script, url in (
            ("dbos-sqlite", "dbos_peer", f"sqlite:///{folder / 'dbos.db'}"),
            ("dbos-postgres", "dbos_peer", postgres["url"]),
            ("langgraph-sqlite", "langgraph_peer", f"sqlite:///{folder / 'langgraph.db'}"),
            ("langgraph-postgres", "langgraph_peer", postgres["url"]),
        ):
            child = await stack.enter_async_context(_child(python, script, folder, [url], log=name))
            hello = await child.said(STARTS_WITHIN_S)
            peers[name] = Peer(child, {**hello["versions"], "postgresql": postgres["version"]})
        yield peers


@asynccontextmanager
async def _child(
    python: Path, script: str, folder: Path, arguments: Sequence[str], log: str | None = None
) -> AsyncIterator[Child]:
    file = folder / f"{log or script}.log"
    with file.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            str(python), str(PEERS / f"{script}.py"), *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    child = Child(process, file)
    try:
        yield child
    finally:
        await child.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
