"""Containers for real, on a machine without a registry:  make test-containers

Starts a private Docker engine if none answers, builds our image from our Dockerfile and stand-ins for the others from
packages, runs the tests that need containers against them, and takes everything away again. What could not be run for
want of an image is named at the end; so is how long each part took.

Ends with 0: all passed; 69: no Docker answers and none can be started here, or Debian's packages cannot be had, so
nothing ran; 1: something failed, or nothing ran and RETOLD_REQUIRE_DOCKER=1 says that it must.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from infra.containers.engine import NoEngineError, docker_engine
from infra.containers.images import (
    NOT_TO_BE_HAD,
    ROOT,
    BuildFailedError,
    NoPackagesError,
    image_builder,
    images_by_variable,
)

BUILD = ROOT / "build"
LOGS = BUILD / "containers-logs"

HOSTED = ("tests/containers/test_hosted_image.py",)
STACK = ("tests/containers", f"--ignore={HOSTED[0]}")
SAME_BODIES = (
    "tests/unit/store",
    "tests/integration/test_turn_workflow.py",
    "-k",
    "postgresql or conflicts or test_turn_workflow",
)
"""What `make test` runs on the embedded servers, on PostgreSQL's and Temporal's containers."""
WITH_QDRANT = ("tests/integration/index", "-k", "container")

AT_ONCE = 7
"""Three builds and four parts, each on a thread that mostly waits for a process, or for an image."""
PASSED, FAILED = 0, 1
NOT_RUN = os.EX_UNAVAILABLE
"""69 of sysexits.h, which neither pytest nor Python ends with: CI goes on after this one only."""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # by way of what takes everything away
    try:
        with docker_engine(BUILD / "docker") as address:
            code = _build_and_test(address)
    except NoEngineError as error:
        print(f"NOT RUN: no container was built or started. {error}")
        return FAILED if os.environ.get("RETOLD_REQUIRE_DOCKER") == "1" else NOT_RUN
    except NoPackagesError as error:
        print(f"NOT RUN: there are no packages to build images from. {error}")
        return FAILED if os.environ.get("RETOLD_REQUIRE_DOCKER") == "1" else NOT_RUN
    except BuildFailedError as error:
        print(f"FAILED: {error}")
        return FAILED
    for variable, what in NOT_TO_BE_HAD.items():
        if variable not in os.environ:
            print(f"not run, no image is to be had here: {what}")
    return code


def _build_and_test(address: str) -> int:
    """Each part as soon as its images are there, beside each other: most of what they do is wait."""
    with image_builder(address, LOGS) as builder, ThreadPoolExecutor(AT_ONCE) as beside:
        with timed("base image"):
            builder.build_base()
        stand_ins = beside.submit(builder.build_stand_ins)
        ours = beside.submit(builder.build_ours)
        hosted = beside.submit(_after, ours, builder.build_ours_for_hosted_models)  # most of its layers are there then
        parts = [beside.submit(_test, address, SAME_BODIES, [stand_ins])]
        parts.append(beside.submit(_test, address, STACK, [stand_ins, ours]))
        parts.append(beside.submit(_test, address, HOSTED, [stand_ins, hosted]))
        if os.environ.get("QDRANT_IMAGE", "none") != "none":
            parts.append(beside.submit(_test, address, WITH_QDRANT, []))
        passed = [part.result() for part in parts]
    _sizes(address)
    return PASSED if all(passed) else FAILED


def _after(image: Future[None], build: Callable[[], None]) -> None:
    image.result()
    build()


def _test(address: str, part: Sequence[str], images: Sequence[Future[None]]) -> bool:
    """Whether all of it passed. One that was killed did not."""
    for image in images:
        image.result()
    with timed(part[0]):
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *part, "-rs", "--durations=5"],
            env={
                **os.environ,
                **images_by_variable(),
                "DOCKER_HOST": address,
                "RETOLD_TEST_STACK": "containers",
                "RETOLD_REQUIRE_DOCKER": "1",
                "TESTCONTAINERS_RYUK_DISABLED": "true",
            },
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(f"{part[0]}:\n{ran.stdout}", flush=True)
    return ran.returncode == 0


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
