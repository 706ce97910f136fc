"""The manifests run the image that `docker build .` makes: what it needs, they name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from retold.models import installed
from retold.models.installed import require_models
from retold.security import require_whole
from retold.settings import Settings

ROOT = Path(__file__).parents[3]
BASE = ROOT / "infra" / "kubernetes" / "base"
CONFIGURATION = yaml.safe_load((BASE / "configuration.yaml").read_text())["data"]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What a worker reads there: the ConfigMap, and the Secret with every key that the ConfigMap's head names."""
    for name, value in CONFIGURATION.items():
        monkeypatch.setenv(name, value)
    for key in set(re.findall(r"retold_\w+", (BASE / "configuration.yaml").read_text())) - {"retold_codec_keys"}:
        (tmp_path / key).write_text(f"the value of {key}")
    monkeypatch.setenv("RETOLD_SECRETS_DIR", str(tmp_path))
    return Settings()


def test_the_default_image_has_every_model_it_is_asked_for(
    configured: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ARG MODELS=hosted" in (ROOT / "Dockerfile").read_text()
    monkeypatch.setattr(installed, "find_spec", lambda package: None)
    require_models(configured)
    assert (configured.utility.gap_enabled, configured.utility.shadow) == (True, True), "it decides, and serves nothing"


def test_nothing_is_protected_by_half_and_every_key_of_the_secret_is_read(configured: Settings) -> None:
    require_whole(configured, {**CONFIGURATION})
    roles: list[Any] = [configured.serving, configured.planner, configured.judge, configured.embedder]
    for name, role in zip(("serving", "planner", "judge", "embedder"), roles, strict=True):
        assert role.api_key.get_secret_value() == f"the value of retold_{name}__api_key"
    assert "the value of retold_store_password" in configured.sql_url


def test_whatever_runs_our_image_reads_the_configuration_and_the_secret() -> None:
    for file in ("worker.yaml", "console.yaml", "migrate.yaml"):
        for manifest in yaml.safe_load_all((BASE / file).read_text()):
            pod = manifest["spec"].get("template", {}).get("spec", {})
            for container in [*pod.get("initContainers", ()), *pod.get("containers", ())]:
                assert container["image"] == "retold"
                assert {"configMapRef": {"name": "retold"}} in container["envFrom"], f"{file}: {container['name']}"
                mounted = {each["mountPath"] for each in container["volumeMounts"]}
                assert CONFIGURATION["RETOLD_SECRETS_DIR"] in mounted
