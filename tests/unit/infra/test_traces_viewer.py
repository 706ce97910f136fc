"""The viewer of traces is for whoever sits at this machine."""

from __future__ import annotations

from infra import traces as viewer


class Opened:
    """Stands in for a gRPC server: what it was told to listen on."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.started = False

    def add_insecure_port(self, address: str) -> int:
        self.addresses.append(address)
        return int(address.rsplit(":", 1)[1])

    def start(self) -> None:
        self.started = True


def test_a_receiver_that_would_listen_everywhere_listens_here() -> None:
    server = Opened()
    here = viewer.OnLoopback(server)
    assert here.add_insecure_port("[::]:4317") == 4317
    here.start()
    assert server.addresses == ["127.0.0.1:4317"] and server.started


def test_it_fetches_nothing_and_reports_nothing() -> None:
    assert viewer.SETTINGS["PHOENIX_HOST"] == "127.0.0.1"
    assert (
        viewer.SETTINGS["PHOENIX_ALLOW_EXTERNAL_RESOURCES"] == viewer.SETTINGS["PHOENIX_TELEMETRY_ENABLED"] == "false"
    )
