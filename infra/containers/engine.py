"""A Docker engine to work with: the one that answers, or a private one for as long as it is needed.

The private one is Debian's `dockerd`, started as root with everything of its own below one folder: socket, data, state,
pid file. It writes no firewall rule (published ports go through its proxy process), is ended by its pid, and what it
wrote is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STARTS_WITHIN_S = 60.0
STOPS_WITHIN_S = 30.0
SOCKET_PATH_MAX = 100
"""The kernel takes 107 bytes, and the engine appends to some paths."""
BRIDGE = "docker0"


class NoEngineError(Exception):
    """No engine answers and none can be started here; the message says why."""


@contextmanager
def docker_engine(folder: Path) -> Iterator[str]:
    """The address of an engine, as DOCKER_HOST takes it. One that was started for this ends with the block.

    Args:
        folder: made if it is not there, and removed at the end; nothing is written outside.

    Raises:
        NoEngineError: none answers, and this process may not or cannot start one.
    """
    given = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if _answers(given) is None:
        yield given
        return
    _require_what_it_takes(folder)
    folder.mkdir(parents=True, exist_ok=True)
    had_bridge = _has_bridge()
    log = folder / "dockerd.log"
    address = f"unix://{folder / 'docker.sock'}"
    with log.open("wb") as lines:
        daemon = subprocess.Popen(
            [
                "dockerd",
                f"--host={address}",
                f"--data-root={folder / 'data'}",
                f"--exec-root={folder / 'exec'}",
                f"--pidfile={folder / 'docker.pid'}",
                "--iptables=false",
                "--ip-masq=false",
            ],
            stdout=lines,
            stderr=lines,
            start_new_session=True,  # Ctrl-C is for the tests: the engine is ended after them
        )
    try:
        _wait_until_it_answers(address, daemon, log)
        yield address
    finally:
        _end(daemon)
        _remove(folder)
        if not had_bridge and _has_bridge():
            subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)


def _answers(address: str) -> str | None:
    """None: it does; else what the client said."""
    if shutil.which("docker") is None:
        return "no docker client is installed"
    asked = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        env={**os.environ, "DOCKER_HOST": address},
        capture_output=True,
        text=True,
        timeout=30,
    )
    return None if asked.returncode == 0 else asked.stderr.strip() or "no answer"


def _require_what_it_takes(folder: Path) -> None:
    if os.geteuid() != 0:
        raise NoEngineError("no Docker answers, and only root can start one")
    missing = [tool for tool in ("docker", "dockerd", "mmdebstrap") if shutil.which(tool) is None]
    if missing:
        raise NoEngineError(f"no {', '.join(missing)} here: apt-get install docker.io mmdebstrap")
    if len(str(folder / "exec" / "containerd" / "containerd.sock.ttrpc")) > SOCKET_PATH_MAX:
        raise NoEngineError(f"{folder} is too long a path for the engine's sockets")


def _wait_until_it_answers(address: str, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while (wrong := _answers(address)) is not None:
        if daemon.poll() is not None:
            raise NoEngineError(f"dockerd ended at once: {_last_words(log)}")
        if time.monotonic() > deadline:
            raise NoEngineError(f"dockerd does not answer ({wrong}): {_last_words(log)}")
        time.sleep(0.2)


def _last_words(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-3:])[-1_000:]


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """It ends its containers and its containerd itself when it is asked to."""
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


def _remove(folder: Path) -> None:
    """What is still mounted below it is let go first, or removing would reach into it."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        mounted = line.split()[1].replace("\\040", " ")
        if mounted.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", mounted], check=False, capture_output=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _has_bridge() -> bool:
    return Path("/sys/class/net", BRIDGE).exists()
