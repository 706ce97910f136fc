"""What must hold around the embedded server: it never outlives us, and never shares its data with a second one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retold.cli import guard
from retold.cli.data_lock import holding
from retold.cli.embedded import embedded_temporal, port_is_free
from retold.cli.failures import CommandError

PATIENCE_S = 10

SERVER = "import pathlib, time; pathlib.Path({pid!r}).write_text(str(__import__('os').getpid())); time.sleep(600)"
DEAF_SERVER = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVER


def gone(pid: int) -> bool:
    """Whether the process ended, reaped by whoever inherited it or not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended between the two looks, or there is no /proc
        return False


def eventually_gone(pid: int) -> bool:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if gone(pid):
            return True
        time.sleep(0.02)
    return False


@contextmanager
def guarded(code: str, pid_file: Path, grace_s: float = 5.0) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A guard and the process id of what it guards."""
    server = [sys.executable, "-c", code.format(pid=str(pid_file))]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(grace_s), *server], stdin=subprocess.PIPE
    ) as process:
        while not (pid_file.is_file() and pid_file.read_text()):
            time.sleep(0.02)
        pid = int(pid_file.read_text())
        try:
            yield process, pid
        finally:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("code", "grace_s"), [(SERVER, 5.0), (DEAF_SERVER, 0.2)], ids=["polite", "deaf to TERM"])
def test_the_server_ends_when_the_pipe_of_its_starter_does(tmp_path: Path, code: str, grace_s: float) -> None:
    with guarded(code, tmp_path / "pid", grace_s) as (process, pid):
        assert process.stdin is not None and not gone(pid)
        process.stdin.close()

        assert eventually_gone(pid)
        process.wait(PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_guard_that_is_told_to_end_takes_the_server_with_it(tmp_path: Path, number: signal.Signals) -> None:
    with guarded(SERVER, tmp_path / "pid") as (process, pid):
        process.send_signal(number)

        assert eventually_gone(pid)
        process.wait(PATIENCE_S)


def test_the_server_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    server = [sys.executable, "-c", SERVER.format(pid=str(tmp_path / "pid"))]
    command = [sys.executable, "-I", "-S", guard.__file__, "5", *server]
    starter = f"import subprocess, time; subprocess.Popen({command!r}, stdin=subprocess.PIPE); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", starter]) as process:
        while not ((tmp_path / "pid").is_file() and (tmp_path / "pid").read_text()):
            time.sleep(0.02)
        process.kill()

    assert eventually_gone(int((tmp_path / "pid").read_text()))


def test_a_guard_ends_with_its_server_and_its_exit_code() -> None:
    command = [sys.executable, "-I", "-S", guard.__file__, "5", sys.executable, "-c", "raise SystemExit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(PATIENCE_S) == 7


def test_a_data_directory_has_one_holder_at_a_time(tmp_path: Path) -> None:
    data = tmp_path / "data"
    held_by_us = rf"\(process {os.getpid()}\) uses the data directory"
    with holding(data), pytest.raises(CommandError, match=held_by_us), holding(data):
        raise AssertionError("held twice")
    with holding(data):
        pass


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="set RETOLD_DATA_DIR"), holding(tmp_path / "file" / "data"):
        raise AssertionError("held")


async def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not port_is_free(port)
        with pytest.raises(CommandError, match=f"port {port} cannot be used"):
            async with embedded_temporal(tmp_path, port=port):
                raise AssertionError("started")
    assert list(tmp_path.iterdir()) == []


async def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "temporal"
    broken.write_text("#!/bin/sh\necho some progress\necho unable to open database file\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("retold.cli.embedded.temporal_binary", lambda: broken)

    with pytest.raises(CommandError, match="ended at once: unable to open database file"):
        async with embedded_temporal(tmp_path):
            raise AssertionError("started")
