"""docker-compose.yml with its offline override, run as a project of its own beside whatever else the engine runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]

from infra.make_secrets import make_secrets
from tests.docker_engine import ROOT, give_up, image

OVERRIDE = ROOT / "infra" / "containers" / "compose.offline.yaml"
IMAGES = ("RETOLD_IMAGE", "POSTGRES_IMAGE", "TEMPORAL_DEV_IMAGE", "OTLP_RECEIVER_IMAGE")
STARTS_WITHIN_S = 240
NAMESPACE = "retold"
PROBE = """
import sys, urllib.request, urllib.error
try:
    answer = urllib.request.urlopen("http://127.0.0.1:8081" + sys.argv[1], timeout=5)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


@dataclass(frozen=True)
class Project:
    """What runs, and how it is reached from this machine."""

    name: str
    compose: tuple[str, ...]
    environment: Mapping[str, str]
    secrets: Path
    temporal: str
    console: str

    def run(self, *arguments: str, within_s: float = 120) -> str:
        """One command of Compose; its standard output."""
        ran = subprocess.run(
            [*self.compose, *arguments],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=within_s,
        )
        assert ran.returncode == 0, f"{' '.join(arguments)}: {ran.stdout[-2_000:]}{ran.stderr[-4_000:]}\n{self.said()}"
        return ran.stdout

    def inside(self, service: str, *command: str) -> str:
        """One command in a container of this service; its standard output.

        Not Compose's `exec`: it was seen to end with 0 and no output where the command had failed.
        """
        container = docker.from_env().containers.get(f"{self.name}-{service}-1")
        code, (printed, wrong) = container.exec_run(command, demux=True)
        assert code == 0, f"{service}: {' '.join(command)}: {printed!r} {wrong!r}\n{self.said()}"
        return (printed or b"").decode()

    def probe(self, path: str) -> tuple[int, str]:
        """What the worker's probe answers; its port is published to nobody."""
        status, _, body = self.inside("worker", "python", "-c", PROBE, path).partition(" ")
        return int(status), body

    def retold(self, *arguments: str) -> Any:
        """The command on this machine, with `--json`, talking to what runs in the containers."""
        ran = subprocess.run(
            [str(Path(sys.executable).with_name("retold")), *arguments, "--json"],
            env={**os.environ, **self.hosts_environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return json.loads(ran.stdout)

    @property
    def hosts_environment(self) -> dict[str, str]:
        """What a host needs to take part: where Temporal is, and the key of the texts."""
        return {
            "TEMPORAL_ADDRESS": self.temporal,
            "TEMPORAL_NAMESPACE": NAMESPACE,
            "RETOLD_CODEC_KEYS_FILE": str(self.secrets / "retold_codec_keys"),
        }

    def containers(self) -> dict[str, Any]:
        """By service, what `ps` knows of it, those that ended included."""
        return {
            each["Service"]: each for each in map(json.loads, self.run("ps", "--all", "--format=json").splitlines())
        }

    def received(self) -> Iterator[dict[str, str]]:
        """Every span the receiver in the collector's place printed so far."""
        for line in self.run("logs", "--no-color", "--no-log-prefix", "collector").splitlines():
            if line.startswith('{"span"'):
                yield json.loads(line)

    def said(self) -> str:
        """The last words of every service."""
        logs = [*self.compose, "logs", "--no-color", "--tail=15"]
        ran = subprocess.run(
            logs, cwd=ROOT, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=60
        )
        return ran.stdout[-6_000:]


@contextmanager
def running_project(folder: Path) -> Iterator[Project]:
    """The project, healthy; removed with its volumes at the end.

    Args:
        folder: for its secrets, which are made for this run.
    """
    project = _project(folder)
    make_secrets(project.secrets)
    try:
        project.run("up", "--detach", "--wait", "--no-build", within_s=STARTS_WITHIN_S)
        yield project
    finally:
        project.run("down", "--volumes", "--remove-orphans", "--timeout=20")


def _project(folder: Path) -> Project:
    images = {name: image(name) for name in IMAGES}
    temporal, console, otlp = _free_ports(3)
    name = f"retold-test-{os.getpid()}"
    environment = {
        **images,
        "RETOLD_SECRETS": str(folder / "secrets"),
        "TEMPORAL_PORT": str(temporal),
        "RETOLD_CONSOLE_PORT": str(console),
        "OTLP_HTTP_PORT": str(otlp),
    }
    files = (f"--file={ROOT / 'docker-compose.yml'}", f"--file={OVERRIDE}")
    return Project(
        name=name,
        compose=(_binary(), f"--project-name={name}", *files),
        environment=environment,
        secrets=folder / "secrets",
        temporal=f"127.0.0.1:{temporal}",
        console=f"http://127.0.0.1:{console}",
    )


def _binary() -> str:
    locked = ROOT / "build" / "infra-venv" / "bin" / "docker-compose"
    found = str(locked) if locked.exists() else shutil.which("docker-compose")
    if found is None:
        give_up("no docker-compose: make build/infra-venv/installed")
    return found


def _free_ports(count: int) -> list[int]:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in listening]
    for each in listening:
        each.close()
    return ports
