"""What `make test-containers` decides before there is any container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import gettempdir

import pytest
import yaml

from infra.containers import engine, images
from infra.containers.engine import NoEngineError, docker_engine

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


def test_an_engine_that_ends_at_once_is_quoted_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool, does in (("docker", "exit 1"), ("mmdebstrap", ""), ("dockerd", "echo no privileges here >&2; exit 1")):
        (tmp_path / tool).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / tool).chmod(0o755)
    folder = Path(gettempdir(), f"retold-{os.getpid()}")  # a test's own folder is too long a path for a socket
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with (
        pytest.raises(NoEngineError, match="dockerd ended at once: no privileges here"),
        docker_engine(folder),
    ):
        pytest.fail("there was no engine")
    assert not folder.exists()


def test_a_path_too_long_for_a_socket_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(engine, "_answers", lambda address: "nobody does")
    with pytest.raises(NoEngineError, match="too long a path"), docker_engine(tmp_path / ("deep" * 20)):
        pytest.fail("there was no engine")


def test_an_engine_that_answers_is_used_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///somebody/elses.sock")
    monkeypatch.setattr(engine, "_answers", lambda address: None)
    with docker_engine(tmp_path / "docker") as address:
        assert address == "unix:///somebody/elses.sock"
    assert not (tmp_path / "docker").exists()
