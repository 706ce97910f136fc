"""What our Dockerfile makes: who it runs as, what is in it and what is not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docker_engine import ROOT, image

pytestmark = pytest.mark.docker

MOST_BYTES = 1_000_000_000
"""With the small models in it. More means that something came along that nobody asked for."""


@pytest.fixture(scope="module")
def ours() -> str:
    return image("RETOLD_IMAGE")


@pytest.fixture(scope="module")
def inspected(ours: str) -> Any:
    return json.loads(docker("image", "inspect", ours))[0]


def docker(*arguments: str) -> str:
    ran = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return ran.stdout


def confined(ours: str, *command: str) -> str:
    """Run as strictly as the deployment runs it, and without a network on top."""
    strict = ("--read-only", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp")
    return docker("run", "--rm", *strict, ours, *command)


def test_it_runs_as_nobody_in_particular_and_hears_signals_itself(inspected: Any) -> None:
    assert inspected["Config"]["User"] == "10001:10001"
    assert (inspected["Config"]["Entrypoint"], inspected["Config"]["Cmd"]) == (None, ["python", "worker.py"])
    assert set(inspected["Config"]["Volumes"]) == {"/var/lib/retold"}


def test_it_says_what_it_is_and_is_not_larger_than_it_needs_to_be(inspected: Any) -> None:
    labels = inspected["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "retold"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.revision"] != ""
    assert inspected["Size"] < MOST_BYTES


def test_what_it_was_built_by_is_not_in_it(ours: str, inspected: Any) -> None:
    names = {setting.partition("=")[0] for setting in inspected["Config"]["Env"]}
    assert names == {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"} | names & OF_THE_BASE_IMAGE
    history = docker("history", "--no-trunc", "--format={{.CreatedBy}}", ours)
    for word in ("index-url", "password", "BEGIN CERTIFICATE"):
        assert word not in history
    # Some folders are root's: what cannot be looked into is not what was asked.
    assert confined(ours, "sh", "-c", f"{FIND_CONFIGURATION} 2>/dev/null || true") == ""


FIND_CONFIGURATION = "find / -xdev -name pip.conf -o -path '/run/secrets/*'"
OF_THE_BASE_IMAGE = {"LANG", "GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256"}


def test_there_is_nothing_in_it_that_installs_or_is_not_deployed(ours: str) -> None:
    app = confined(ours, "sh", "-c", "ls -A /app; find /app -user 10001").split()
    assert sorted(app) == ["activities", "worker.py", "workflows"], "whole, and owned by somebody else than it runs as"
    assert confined(ours, "sh", "-c", "ls /opt/retold/bin | grep -c pip || true").strip() == "0"
    assert confined(ours, "python", "-c", TESTS_AND_TOOLS) == ""


TESTS_AND_TOOLS = """
from importlib.util import find_spec
print(*(name for name in ("pytest", "mypy", "setuptools", "tests") if find_spec(name)), end="")
"""


def test_the_command_runs_read_only_without_a_network_and_nothing_is_compiled_at_start(ours: str) -> None:
    version = confined(ours, "retold", "--version").strip()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert "every setting has its default" in confined(ours, "retold", "config", "check")
    cached = confined(ours, "python", "-c", "import retold.settings as s; print(s.__cached__)").strip()
    assert confined(ours, "ls", cached).strip() == cached


def test_every_stage_is_pinned_by_the_locks_that_are_copied_in() -> None:
    dockerfile = Path(ROOT, "Dockerfile").read_text()
    assert dockerfile.count("--require-hashes") == 1 and "-r requirements/worker.lock" in dockerfile
    for lock in ("worker.lock", "worker-local.lock", "models.lock"):
        assert "--hash=sha256:" in Path(ROOT, "requirements", lock).read_text()
