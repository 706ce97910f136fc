"""Checks the deployment files with the tools that will read them, without a daemon, a cluster or a network.

    make validate-infra

A tool that is not installed is an error, not a pass: `promtool` comes with Debian's package `prometheus`, the others
from requirements/infra.lock. What only a running container could tell (`otelcol validate`, Grafana's import) is named
at the end as not checked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
INFRA = ROOT / "infra"
OVERLAYS = sorted(path.parent for path in (INFRA / "kubernetes" / "overlays").glob("*/kustomization.yaml"))
WITHOUT_A_SCHEMA = {"ScaledObject"}
"""Kinds of operators; kubernetes-validate only carries Kubernetes' own."""

NOT_CHECKED = (
    "the collector's component names (its own `validate`), Grafana's import of the dashboards, Jaeger's configuration: "
    "each needs its image, and none can be pulled without a registry"
)


class CheckFailedError(Exception):
    """What a tool said about a file."""


def compose_file() -> None:
    """Compose reads the file, and nothing but loopback is published."""
    read = yaml.safe_load(_run("docker-compose", "-f", str(ROOT / "docker-compose.yml"), "config"))
    for name, service in read["services"].items():
        for port in service.get("ports", ()):
            if port.get("host_ip") != "127.0.0.1":
                raise CheckFailedError(f"service {name} publishes {port['target']} beyond loopback")
        if "memory" not in service.get("deploy", {}).get("resources", {}).get("limits", {}):
            raise CheckFailedError(f"service {name} has no memory limit")


def prometheus_configuration() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # The key's path exists in the container only.
        key = Path(folder) / "key"
        key.touch()
        shutil.copytree(INFRA / "prometheus" / "rules", Path(folder) / "rules")
        for config in (INFRA / "prometheus").glob("*.yml"):
            here = Path(folder) / config.name
            here.write_text(config.read_text().replace("/run/secrets/retold_qdrant_api_key", str(key)))
            _run("promtool", "check", "config", str(here))


def alert_rules() -> None:
    _run("promtool", "test", "rules", *map(str, sorted((INFRA / "prometheus" / "tests").glob("*.yml"))))


def kubernetes_manifests() -> None:
    for overlay in OVERLAYS:
        manifests = list(yaml.safe_load_all(_run("kubectl", "kustomize", str(overlay))))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump_all([each for each in manifests if each["kind"] not in WITHOUT_A_SCHEMA], file)
            file.flush()
            _run("kubernetes-validate", "--strict", file.name)


def temporal_dynamic_configuration() -> None:
    """The server ignores a key it does not know: every one of ours must be spelled in its binary."""
    binary = shutil.which("temporal") or str(Path(sys.executable).with_name("temporal"))
    known = Path(binary).read_bytes().lower()
    for key in yaml.safe_load((INFRA / "temporal" / "dynamic-config.yaml").read_text()):
        if key.lower().encode() not in known:
            raise CheckFailedError(f"dynamic configuration: this server version knows no {key}")


CHECKS: tuple[Callable[[], None], ...] = (
    compose_file,
    prometheus_configuration,
    alert_rules,
    kubernetes_manifests,
    temporal_dynamic_configuration,
)


def failures() -> Iterator[str]:
    for check in CHECKS:
        what = check.__name__.replace("_", " ")
        try:
            check()
        except CheckFailedError as error:
            print(f"FAILED  {what}")
            yield f"{what}: {error}"
        else:
            print(f"ok      {what}")


def _run(tool: str, *arguments: str) -> str:
    if shutil.which(tool) is None:
        raise CheckFailedError(f"{tool} is not installed: see the top of infra/validate.py")
    ran = subprocess.run(
        [tool, *arguments],
        cwd=ROOT,
        env={**os.environ, "DOCKER_CONFIG": "/nonexistent"},
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        raise CheckFailedError((ran.stdout + ran.stderr).strip()[-4_000:])
    return ran.stdout


if __name__ == "__main__":
    found = list(failures())
    print(f"not checked here: {NOT_CHECKED}")
    sys.exit("\n".join(found) if found else 0)
