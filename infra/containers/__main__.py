"""Containers for real, on a machine without a registry:  make test-containers

Starts a private Docker engine if none answers, builds our image from our Dockerfile and stand-ins for the others from
packages, runs the tests that need containers against them, and takes everything away again. What could not be run for
want of an image is named at the end; so is how long each part took.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from infra.containers.engine import NoEngineError, docker_engine
from infra.containers.images import NOT_TO_BE_HAD, ROOT, Builder, BuildFailedError, images_by_variable

BUILD = ROOT / "build"
LOGS = BUILD / "containers-logs"

STACK = ("tests/containers",)
ALL = os.environ.get("RETOLD_CONTAINER_TESTS") == "all"
_STORE = ("",) if ALL else ("/test_records.py", "/test_decisions.py", "/test_conflicts.py")
SAME_BODIES = (
    *(f"tests/unit/store{file}" for file in _STORE),
    "tests/integration/test_turn_workflow.py",
    "-k",
    "postgresql or conflicts or test_turn_workflow",
)
"""What `make test` runs on the embedded servers, on PostgreSQL's and Temporal's containers. `make test` has every test
of the store on a PostgreSQL too, so a part of them is enough here; RETOLD_CONTAINER_TESTS=all takes them all."""
WITH_QDRANT = ("tests/integration/index", "-k", "container")

CANNOT, FAILED = 0, 1


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # by way of what takes everything away
    required = os.environ.get("RETOLD_REQUIRE_DOCKER") == "1"
    LOGS.mkdir(parents=True, exist_ok=True)
    try:
        with docker_engine(BUILD / "docker") as address:
            with timed("images"):
                Builder(address, LOGS).build_all()
            _sizes(address)
            with timed("tests"):
                code = _tests(address)
    except NoEngineError as error:
        print(f"NOT RUN: no container was built or started. {error}")
        return FAILED if required else CANNOT
    except BuildFailedError as error:
        print(f"FAILED: {error}")
        return FAILED
    for variable, what in NOT_TO_BE_HAD.items():
        if variable not in os.environ:
            print(f"not run, no image is to be had here: {what}")
    return code


def _tests(address: str) -> int:
    """The parts beside each other: most of what the stack does is wait."""
    qdrant = os.environ.get("QDRANT_IMAGE", "none") != "none"
    parts = [STACK, SAME_BODIES, *([WITH_QDRANT] if qdrant else [])]
    environment = {
        **os.environ,
        **images_by_variable(),
        "DOCKER_HOST": address,
        "RETOLD_TEST_STACK": "containers",
        "RETOLD_REQUIRE_DOCKER": "1",
        "TESTCONTAINERS_RYUK_DISABLED": "true",
    }

    def run(part: Sequence[str]) -> int:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *part, "-rs", "--durations=5"],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(f"{part[0]}:\n{ran.stdout}", flush=True)
        return ran.returncode

    with ThreadPoolExecutor(len(parts)) as all_parts:
        return max(all_parts.map(run, parts))


def _sizes(address: str) -> None:
    listed = ["docker", "images", "--format={{.Repository}}:{{.Tag}} {{.Size}}", "retold-offline/*"]
    subprocess.run(listed, env={**os.environ, "DOCKER_HOST": address}, check=False)


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
