"""A Docker engine to work with: the one that answers, or a private one for as long as it is needed.

The private one is Debian's `dockerd`, started as root with everything of its own below one folder: socket, data, state,
pid file. It writes no firewall rule (published ports go through its proxy process), is ended by its pid, and what it
wrote is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ANSWERS_WITHIN_S = 30.0
STARTS_WITHIN_S = 60.0
STOPS_WITHIN_S = 30.0
SOCKET_PATH_MAX = 100
"""The kernel takes 107 bytes, and the engine appends to some paths."""
BRIDGE = "docker0"
PROBE = "retold-offline/probe"


class NoEngineError(Exception):
    """No engine answers and none can be started here; the message says why."""


@contextmanager
def docker_engine(folder: Path) -> Iterator[str]:
    """The address of an engine, as DOCKER_HOST takes it. One that was started for this ends with the block.

    Args:
        folder: made for it and removed at the end, and before if a run that was killed left it. A file beside it,
            `….lock`, is all that is written elsewhere: whoever comes second waits there.

    Raises:
        NoEngineError: none answers, and this process may not or cannot start one that runs a container.
    """
    given = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if _answers(given) is None:
        yield given
        return
    _require_what_it_takes(folder)
    with _alone(folder):
        _end_what_was_left(folder)
        with _private_engine(folder) as address:
            yield address


@contextmanager
def _private_engine(folder: Path) -> Iterator[str]:
    folder.mkdir()
    had_bridge = Path("/sys/class/net", BRIDGE).exists()
    log = folder / "dockerd.log"
    address = _address(folder)
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
        _run_a_container(address, folder)
        yield address
    finally:
        bridges = _bridges(address)  # of networks that tests which were killed have left
        _end(daemon)
        _remove(folder)
        _take_down(bridges if had_bridge else [*bridges, BRIDGE])


def _answers(address: str) -> str | None:
    """None: it does; else what the client said."""
    if shutil.which("docker") is None:
        return "no docker client is installed"
    asked = _docker(address, "version", "--format", "{{.Server.Version}}")
    return None if asked.returncode == 0 else asked.stderr.strip() or "no answer"


def _require_what_it_takes(folder: Path) -> None:
    if os.geteuid() != 0:
        raise NoEngineError("no Docker answers, and only root can start one")
    missing = [tool for tool in ("docker", "dockerd", "mmdebstrap") if shutil.which(tool) is None]
    if missing:
        raise NoEngineError(f"no {', '.join(missing)} here: apt-get install docker.io mmdebstrap")
    if len(str(folder / "exec" / "containerd" / "containerd.sock.ttrpc")) > SOCKET_PATH_MAX:
        raise NoEngineError(f"{folder} is too long a path for the engine's sockets")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One run at a time keeps an engine there. The kernel lets go of the lock of whoever is killed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end_what_was_left(folder: Path) -> None:
    """An engine outlives a run that was killed, and would keep the next one from starting."""
    pid_file = folder / "docker.pid"
    if pid_file.exists():
        process = Path("/proc", pid_file.read_text().strip())
        if str(folder) in _command_line(process):
            bridges = _bridges(_address(folder))
            os.kill(int(process.name), signal.SIGTERM)
            deadline = time.monotonic() + STOPS_WITHIN_S
            while str(folder) in _command_line(process) and time.monotonic() < deadline:
                time.sleep(0.2)
            _take_down([*bridges, BRIDGE])
    _remove(folder)


def _command_line(process: Path) -> str:
    """Empty: it has ended."""
    try:
        return (process / "cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _wait_until_it_answers(address: str, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while (wrong := _answers(address)) is not None:
        if daemon.poll() is not None:
            raise NoEngineError(f"dockerd ended at once: {_last_words(log)}")
        if time.monotonic() > deadline:
            raise NoEngineError(f"dockerd does not answer ({wrong}): {_last_words(log)}")
        time.sleep(0.2)


def _run_a_container(address: str, folder: Path) -> None:
    """An engine can answer and yet run nothing, for want of a privilege that only a container takes. So one is run: of
    an image with one file in it, the static program that comes with the engine, on the network that tests will use.
    """
    program = shutil.which("docker-init")
    if program is None:
        raise NoEngineError("no docker-init here: it comes with docker.io")
    archive = folder / "probe.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        tar.add(program, "init")
    probe = (("import", str(archive), PROBE), ("run", "--rm", PROBE, "/init", "--version"), ("rmi", PROBE))
    for command in probe:
        ran = _docker(address, *command)
        if ran.returncode != 0:
            raise NoEngineError(f"dockerd answers, and no container can be run: {ran.stderr.strip()[-1_000:]}")


def _bridges(address: str) -> list[str]:
    """The interfaces of this engine's networks, its default one left out."""
    listed = _docker(address, "network", "ls", "--filter=driver=bridge", "--format={{.ID}} {{.Name}}")
    ids = (line.split() for line in listed.stdout.splitlines())
    return [f"br-{identity[:12]}" for identity, name in ids if name != "bridge"]


def _take_down(bridges: Iterable[str]) -> None:
    for bridge in bridges:
        if Path("/sys/class/net", bridge).exists():
            subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)


def _address(folder: Path) -> str:
    return f"unix://{folder / 'docker.sock'}"


def _docker(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["docker", *arguments]
    environment = {**os.environ, "DOCKER_HOST": address}
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=ANSWERS_WITHIN_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {ANSWERS_WITHIN_S:g} s")


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
