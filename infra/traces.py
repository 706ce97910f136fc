"""A viewer of traces on this machine (`make traces`): Arize Phoenix, run by the environment it is installed in.

    build/traces-venv/bin/python infra/traces.py FOLDER [PORT]

What it receives stays in FOLDER, and both of its ports are this machine's alone: its gRPC receiver has no setting for
that and would listen on every interface.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

grpc: Any = importlib.import_module("grpc")
"""Of the environment this runs in, which is not the one it is type-checked in."""

HOST = "127.0.0.1"
PORT = 6006
SETTINGS = {
    "PHOENIX_HOST": HOST,
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_TELEMETRY_ENABLED": "false",
}


class OnLoopback:
    """A gRPC server whose ports are opened on this machine only."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def add_insecure_port(self, address: str) -> int:
        bound: int = self._server.add_insecure_port(f"{HOST}:{address.rsplit(':', 1)[1]}")
        return bound

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


def main() -> None:
    folder, port = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else PORT
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(SETTINGS | {"PHOENIX_WORKING_DIR": str(folder), "PHOENIX_PORT": str(port)})
    os.environ["PHOENIX_GRPC_PORT"] = str(port + 1)  # 4317 is a collector's
    server_of = grpc.aio.server
    grpc.aio.server = lambda *args, **options: OnLoopback(server_of(*args, **options))
    print(f"traces: http://{HOST}:{port} (ready in about a minute; Ctrl-C ends it)")
    print("send yours there, by this in the environment of `retold dev` and of whatever sends turns:")
    print(f"    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://{HOST}:{port}/v1/traces", flush=True)
    sys.argv = ["phoenix", "serve"]
    importlib.import_module("phoenix.server.main").main()  # it reads the environment when it is imported


if __name__ == "__main__":
    main()
