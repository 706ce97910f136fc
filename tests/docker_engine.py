"""Servers in containers, for the test bodies that otherwise run on the embedded ones.

RETOLD_TEST_STACK=containers    PostgreSQL and Temporal come from images, for whatever test asks for them
RETOLD_REQUIRE_DOCKER=1         where no Docker answers, or an image is not there, fail instead of skipping
POSTGRES_IMAGE=… QDRANT_IMAGE=… the images, by the variables of docker-compose.yml, whose defaults hold here too;
                                `none`: this site has none, and what needs it is skipped in any case
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

ROOT = Path(__file__).parents[1]
STARTS_WITHIN_S = 60
NO_IMAGE = "none"
TEMPORAL_DEV_IMAGE = "temporalio/temporal:latest"
"""Temporal's command with its development server in it; the server of docker-compose.yml needs a database first."""
BUILT_HERE = {
    "RETOLD_IMAGE": "retold:local",
    "RETOLD_HOSTED_IMAGE": "retold:hosted",
    "OTLP_RECEIVER_IMAGE": "retold-offline/otlp:receiver",
}
"""What no registry has; `make test-containers` builds them."""


def in_containers() -> bool:
    """Whether PostgreSQL and Temporal are to come from images in this run."""
    return os.environ.get("RETOLD_TEST_STACK") == "containers"


def image(variable: str) -> str:
    """The image a variable names. Skips the test where there is no Docker, or no such image by intention."""
    require_docker()
    named = os.environ.get(variable) or _defaults()[variable]
    if named == NO_IMAGE:
        pytest.skip(f"{variable}={NO_IMAGE}: this site has no such image")
    if variable in BUILT_HERE and not _is_here(named):
        give_up(f"no image {named} here: make test-containers builds it")
    return named


def require_docker() -> None:
    """Skips with the reason where no Docker answers; fails with it if there must be one."""
    if (wrong := _what_docker_says()) is not None:
        give_up(f"no Docker answers: {wrong}")


def give_up(reason: str) -> NoReturn:
    """A skip, or a failure if RETOLD_REQUIRE_DOCKER says so."""
    if os.environ.get("RETOLD_REQUIRE_DOCKER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def postgres_in_a_container() -> Iterator[str]:
    """A libpq URL of its administrator."""
    named = image("POSTGRES_IMAGE")
    from testcontainers.community.postgres import PostgresContainer

    container = PostgresContainer(named, dbname="postgres", driver=None)
    # What is in it lives as long as the test run: nothing needs to survive a power cut, or to reach a disk.
    container.with_tmpfs_mount("/var/lib/postgresql/data", "size=2g")
    container.with_command("postgres -c fsync=off -c synchronous_commit=off -c full_page_writes=off")
    with container as running:
        yield running.get_connection_url()


@contextmanager
def temporal_in_a_container() -> Iterator[str]:
    """Its address; the namespace is `default`, and nothing is kept."""
    command = (
        "server start-dev --ip 0.0.0.0 --headless --log-level error "
        "--dynamic-config-value history.transferProcessorMaxPollRPS=1000"
    )
    with _running(image("TEMPORAL_DEV_IMAGE"), 7233, command) as (container, address):
        health = ["temporal", "operator", "cluster", "health", "--address", "127.0.0.1:7233"]
        _wait_until(lambda: container.exec(health).exit_code == 0, container)
        yield address


@contextmanager
def qdrant_in_a_container() -> Iterator[str]:
    """Its URL."""
    named = image("QDRANT_IMAGE")
    from testcontainers.community.qdrant import QdrantContainer

    with QdrantContainer(named) as running:
        yield f"http://{running.get_container_host_ip()}:{running.get_exposed_port(6333)}"


@contextmanager
def collector_in_a_container() -> Iterator[tuple[str, Callable[[], str]]]:
    """The base URL of its OTLP receiver, and what it has printed so far."""
    named = image("COLLECTOR_IMAGE")
    config = ROOT / "tests" / "containers" / "collector.yaml"
    with _running(named, 4318, "--config=/etc/collector.yaml", {config: "/etc/collector.yaml"}) as (container, address):
        url = f"http://{address}"
        _wait_until(lambda: httpx.get(url).status_code > 0, container)
        yield url, lambda: b"".join(container.get_logs()).decode()


@contextmanager
def _running(named: str, port: int, command: str, files: dict[Path, str] | None = None) -> Iterator[tuple[Any, str]]:
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(named).with_exposed_ports(port).with_command(command)
    for file, inside in (files or {}).items():
        container.with_volume_mapping(str(file), inside, "ro")
    with container as running:
        yield running, f"{running.get_container_host_ip()}:{running.get_exposed_port(port)}"


def _wait_until(answers: Callable[[], bool], container: Any) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        try:
            if answers():
                return
        except httpx.HTTPError as error:
            reason = repr(error)
        else:
            reason = "not ready"
        time.sleep(0.2)
    raise TimeoutError(f"{reason}; it said: {b''.join(container.get_logs()).decode()[-2_000:]}")


@cache
def _what_docker_says() -> str | None:
    """None: it answers."""
    import docker  # type: ignore[import-untyped]

    # The reaper is one more image, and only removes what a killed test run left.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    try:
        docker.from_env().ping()
    except docker.errors.DockerException as error:
        return str(error)
    return None


def _is_here(named: str) -> bool:
    import docker

    try:
        docker.from_env().images.get(named)
    except docker.errors.ImageNotFound:
        return False
    return True


@cache
def _defaults() -> dict[str, str]:
    written = (ROOT / "docker-compose.yml").read_text()
    ours = {"TEMPORAL_DEV_IMAGE": TEMPORAL_DEV_IMAGE, **BUILT_HERE}
    return {**dict(re.findall(r"\$\{([A-Z_]+_IMAGE):-([^}]+)\}", written)), **ours}
