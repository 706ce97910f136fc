"""`/livez` and `/readyz` of a worker, for whoever decides to restart it or to send it work."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from retold.readiness import Readiness


@asynccontextmanager
async def serving_probes(address: str, readiness: Readiness) -> AsyncIterator[None]:
    """Answer probes on `host:port` until the block ends.

    On the worker's own event loop, on purpose: a loop that stands still does not answer, and that is what liveness is
    about. Nothing else is served there, and nothing said there is personal.

    Raises:
        OSError: the address cannot be used.
    """
    # Bound here: uvicorn would end the process over a port that is taken.
    with _bound(*split_address(address)) as listening:
        config = uvicorn.Config(
            probes(readiness), log_config=None, access_log=False, lifespan="off", timeout_keep_alive=2
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield
        finally:
            server.should_exit = True
            await serving


def probes(readiness: Readiness) -> Starlette:
    async def live(_: Request) -> JSONResponse:
        return JSONResponse({"live": True})

    async def ready(_: Request) -> JSONResponse:
        wrong = {dependency: why for dependency, why in (await readiness.look()).items() if why is not None}
        return JSONResponse({"ready": not wrong, "waiting_for": wrong}, status_code=503 if wrong else 200)

    return Starlette(routes=[Route("/livez", live), Route("/readyz", ready)])


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `:port` for any interface, `[::1]:port`.

    Raises:
        ValueError: it is not that.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]") or "0.0.0.0", int(port)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(16)
    except OSError:
        listening.close()
        raise
    return listening


class _Server(uvicorn.Server):
    """Leaves signals to the worker: it knows what to finish before it ends."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield
