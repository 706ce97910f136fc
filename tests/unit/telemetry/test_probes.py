"""Liveness is the loop's, readiness the dependencies'; both are asked over real HTTP."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from retold import readiness as readiness_module
from retold.policy.switches import SwitchBoard
from retold.readiness import Readiness, switches_are_fresh
from retold.telemetry.probes import serving_probes, split_address


class Dependency:
    def __init__(self) -> None:
        self.looked_at = 0
        self.error: Exception | None = None
        self.hangs = False

    async def __call__(self) -> None:
        self.looked_at += 1
        if self.hangs:
            await asyncio.sleep(60)
        if self.error is not None:
            raise self.error


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def test_a_worker_is_ready_when_everything_it_needs_is_and_names_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness_module, "LOOK_LIMIT_MS", 50.0)
    store, index, now_s = Dependency(), Dependency(), 0.0
    readiness = Readiness({"store": store, "index": index}, clock_s=lambda: now_s)
    address = f"127.0.0.1:{free_port()}"
    async with serving_probes(address, readiness), httpx.AsyncClient(base_url=f"http://{address}") as probe:
        assert (await probe.get("/livez")).status_code == 200
        first = await probe.get("/readyz")
        assert (first.status_code, first.json()) == (200, {"ready": True, "waiting_for": {}})
        store.error, index.hangs = ConnectionError("refused"), True
        assert (await probe.get("/readyz")).status_code == 200, "two observers within two seconds get one answer"
        now_s = 10.0
        second = await probe.get("/readyz")
        assert second.status_code == 503
        assert second.json()["waiting_for"] == {
            "store": "ConnectionError: refused",
            "index": "does not answer in 50 ms",
        }
        assert (await probe.get("/livez")).status_code == 200, "a restart would not bring the store back"
        assert dict((labels["dependency"], value) for value, labels in readiness.as_metric()) == {
            "store": 0,
            "index": 0,
        }
    with pytest.raises(httpx.ConnectError):
        await httpx.AsyncClient().get(f"http://{address}/livez")


async def test_observers_who_come_while_a_look_hangs_share_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, each would wait for those before it, and no observer waits that long."""
    monkeypatch.setattr("retold.readiness.LOOK_LIMIT_MS", 50.0)
    monkeypatch.setattr("retold.readiness.FRESH_FOR_S", 0.05)
    store = Dependency()
    store.hangs = True
    readiness = Readiness({"store": store})
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*(readiness.look() for _ in range(10)))
    assert answers == [{"store": "does not answer in 50 ms"}] * 10
    assert store.looked_at == 1


async def test_a_taken_port_is_an_error_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            async with serving_probes(f"127.0.0.1:{taken.getsockname()[1]}", Readiness({})):
                pass


async def test_stale_switches_are_not_ready() -> None:
    now_s = 0.0
    board = SwitchBoard(_Switches(), clock_s=lambda: now_s)
    look = switches_are_fresh(board)
    with pytest.raises(RuntimeError, match="never read"):
        await look()
    await board.read()
    await look()
    now_s = 500.0
    with pytest.raises(RuntimeError, match="last read 500 s ago"):
        await look()


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), (":9464", ("0.0.0.0", 9464)), ("[::1]:1", ("::1", 1))],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["80a", "host", "host:", "host:70000"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_address(address)


class _Switches:
    async def switches(self) -> tuple[()]:
        return ()

    async def note_switch_file(self, states: object) -> None: ...
