"""What `make test-containers` decides before there is any container."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from infra.containers import __main__ as run
from infra.containers import engine, images
from infra.containers.engine import NoEngineError, docker_engine
from infra.containers.images import BuildFailedError, NoPackagesError

ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
NOBODY_ANSWERS = "unix:///nobody/listens/here.sock"


class _OfCompose(yaml.SafeLoader):
    """Reads Compose's own tags as what they stand before."""


_OfCompose.add_multi_constructor("!", lambda loader, tag, node: None)
OVERRIDE = yaml.load((ROOT / "infra" / "containers" / "compose.offline.yaml").read_text(), _OfCompose)


def test_every_image_of_the_compose_file_is_built_here_or_named_as_not_run() -> None:
    variables = {re.findall(r"\$\{(\w+):-", service["image"])[0] for service in COMPOSE["services"].values()}
    assert variables <= {*images.images_by_variable(), *images.NOT_TO_BE_HAD}


def test_offline_every_service_is_left_out_or_has_an_image_that_is_built_here() -> None:
    assert set(OVERRIDE["services"]) <= set(COMPOSE["services"])
    built = images.images_by_variable()
    for name, service in COMPOSE["services"].items():
        over = OVERRIDE["services"].get(name, {})
        if over.get("profiles") == ["images"]:
            continue
        variable = re.findall(r"\$\{(\w+):-", over.get("image", service["image"]))[0]
        assert variable in built, name


def test_what_only_this_machine_has_stays_out_of_the_builds_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def configured(*_: object, **__: object) -> object:
        class Ran:
            stdout = (
                "global.index-url='https://mirror.example/simple'\n"
                "global.extra-index-url='file:///opt/simple https://more.example/simple'\n"
                "global.find-links='/opt/wheels'\nglobal.constraint='/etc/constraints.txt'\n:env:.timeout='60'\n"
            )

        return Ran()

    monkeypatch.setattr(subprocess, "run", configured)
    monkeypatch.setattr(images, "_certificates", lambda: Path("/etc/ssl/bundle.crt"))
    written = images._pip_configuration()
    assert "index-url = https://mirror.example/simple" in written
    assert "extra-index-url = https://more.example/simple" in written
    assert "timeout = 60" in written and "cert = /run/secrets/ca_bundle" in written
    assert "/opt" not in written and "constraint" not in written


@pytest.mark.parametrize(
    ("user", "missing", "said"),
    [(1000, (), "only root can start one"), (0, ("dockerd",), "apt-get install docker.io mmdebstrap")],
)
def test_where_no_engine_can_be_started_the_reason_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, missing: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOBODY_ANSWERS)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in missing else f"/usr/bin/{tool}")
    monkeypatch.setattr(engine, "_answers", lambda address: "nobody does")
    with pytest.raises(NoEngineError, match=said), docker_engine(tmp_path / "docker"):
        pytest.fail("there was no engine")
    assert not (tmp_path / "docker").exists()


UNTIL_IT_IS_TOLD = """trap 'exit 0' TERM; touch "$(dirname "$0")/up"; while :; do sleep 0.05; done"""
CLIENT_OF_AN_ENGINE_THAT_RUNS_NOTHING = """
case "$1" in
  version) [ "$DOCKER_HOST" != unix:///nobody/listens/here.sock ] && [ -e "$(dirname "$0")/up" ] ;;
  run) echo "cgroups: not permitted" >&2; exit 125 ;;
esac
"""


@pytest.mark.parametrize(
    ("client", "daemon", "said"),
    [
        ("exit 1", "echo no privileges here >&2; exit 1", "dockerd ended at once: no privileges here"),
        (CLIENT_OF_AN_ENGINE_THAT_RUNS_NOTHING, UNTIL_IT_IS_TOLD, "no container can be run: cgroups: not permitted"),
    ],
)
def test_an_engine_that_ends_at_once_or_runs_nothing_is_none_and_nothing_is_left(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch, client: str, daemon: str, said: str
) -> None:
    commands(tmp_path, {"docker": client, "mmdebstrap": "", "docker-init": "", "dockerd": daemon})
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", NOBODY_ANSWERS)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoEngineError, match=said), docker_engine(short / "docker"):
        pytest.fail("there was no engine")
    assert [path.name for path in short.iterdir()] == ["docker.lock"]
    assert processes_that_name(tmp_path / "dockerd") == []


def test_an_engine_that_a_killed_run_left_is_ended_before_the_next_begins(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path, {"docker": "exit 1", "mmdebstrap": "", "dockerd": UNTIL_IT_IS_TOLD})
    folder = short / "docker"
    folder.mkdir()
    left = subprocess.Popen([tmp_path / "dockerd", f"--data-root={folder / 'data'}"], start_new_session=True)
    (folder / "docker.pid").write_text(str(left.pid))
    until = time.monotonic() + 5
    while not (tmp_path / "up").exists() and time.monotonic() < until:
        time.sleep(0.01)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    taken_down: list[str] = []
    monkeypatch.setattr(engine, "_take_down", taken_down.extend)  # this machine's own stay
    engine._end_what_was_left(folder)
    assert taken_down == [engine.BRIDGE]
    assert left.wait(timeout=5) == 0, "asked to end, not killed"
    assert not folder.exists()


@pytest.fixture
def short() -> Iterator[Path]:
    """A test's own folder is too long a path for a socket."""
    with TemporaryDirectory(prefix="r") as folder:
        yield Path(folder)


def commands(folder: Path, shell: dict[str, str]) -> None:
    for name, does in shell.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)


def processes_that_name(path: Path) -> list[str]:
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines.append((process / "cmdline").read_text())
    return [line for line in lines if str(path) in line]


def test_a_path_too_long_for_a_socket_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(engine, "_answers", lambda address: "nobody does")
    with pytest.raises(NoEngineError, match="too long a path"), docker_engine(tmp_path / ("deep" * 20)):
        pytest.fail("there was no engine")


@contextmanager
def no_engine(folder: Path) -> Iterator[str]:
    raise NoEngineError("no Docker answers, and only root can start one")
    yield


@contextmanager
def an_engine(folder: Path) -> Iterator[str]:
    yield NOBODY_ANSWERS


def cannot_build(address: str) -> int:
    raise BuildFailedError("retold:local: docker ended with 69")


def has_no_packages(address: str) -> int:
    raise NoPackagesError("mmdebstrap ended with 25")


@pytest.mark.parametrize(
    ("engine_here", "build_and_test", "required", "ends_with"),
    [
        (no_engine, None, "", 69),
        (no_engine, None, "1", 1),
        (an_engine, has_no_packages, "", 69),
        (an_engine, has_no_packages, "1", 1),
        (an_engine, cannot_build, "", 1),
        (an_engine, lambda address: 1, "", 1),
        (an_engine, lambda address: 0, "1", 0),
    ],
)
def test_what_could_not_run_and_what_failed_have_exit_codes_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
    engine_here: Callable[[Path], AbstractContextManager[str]],
    build_and_test: Callable[[str], int],
    required: str,
    ends_with: int,
) -> None:
    monkeypatch.setenv("RETOLD_REQUIRE_DOCKER", required)
    monkeypatch.setattr(run, "docker_engine", engine_here)
    monkeypatch.setattr(run, "_build_and_test", build_and_test)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its own
    assert run.main() == ends_with


@pytest.mark.parametrize(("ended", "passed"), [("exit 0", True), ("exit 1", False), ("kill -9 $$", False)])
def test_a_part_that_failed_or_was_killed_did_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str, passed: bool
) -> None:
    commands(tmp_path, {"python": ended})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert run._test(NOBODY_ANSWERS, ("tests/containers",), []) is passed


@pytest.mark.parametrize(("containers", "ci"), [(0, 0), (69, 0), (1, 1), (2, 1), (137, 1)])
def test_ci_goes_on_where_no_docker_can_be_started_and_fails_with_everything_else(
    tmp_path: Path, containers: int, ci: int
) -> None:
    for folder in (".ci", ".venv/bin", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    there = dict.fromkeys(("make", "chromium", "promtool", "dockerd", "mmdebstrap"), "")
    commands(tmp_path / "bin", there)
    commands(tmp_path / ".venv" / "bin", {"python": f'[ "$*" = "-m infra.containers" ] || exit 0\nexit {containers}'})
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    ran = subprocess.run([tmp_path / ".ci" / "run"], env={**os.environ, "PATH": path}, capture_output=True)
    assert ran.returncode == ci, ran.stderr
    assert (b"once more" in ran.stdout) == bool(ci)


def test_an_engine_that_answers_is_used_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///somebody/elses.sock")
    monkeypatch.setattr(engine, "_answers", lambda address: None)
    with docker_engine(tmp_path / "docker") as address:
        assert address == "unix:///somebody/elses.sock"
    assert not (tmp_path / "docker").exists()
