"""Half-configured security is refused before anything starts, what is open is named, and no value is ever shown."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from retold.contracts.config import AdmissionMode, UtilityAwareConfig
from retold.security import HalfConfiguredError, Severity, findings, require_whole
from retold.settings import Settings, SettingsSourceError, WorkerSettings

KEYS = json.dumps([{"id": "a", "key": base64.b64encode(b"k" * 32).decode()}])
CLOUD = {"TEMPORAL_ADDRESS": "acme.tmprl.cloud:7233"}
IN_A_CONTAINER = {"host": "0.0.0.0", "behind_loopback": True}
REMOTE_STORE = "postgresql+psycopg://retold@db.example.org/retold"


def found(environment: dict[str, str] | None = None, **settings: Any) -> dict[str, str]:
    return {each.setting: each.severity for each in findings(Settings(**settings), environment or {})}


def test_one_machine_needs_nothing() -> None:
    assert found() == {}
    require_whole(Settings(), {})


@pytest.mark.parametrize(
    ("environment", "settings", "refused"),
    [
        ({"TEMPORAL_TLS_CLIENT_CERT_PATH": "/c"}, {}, "TEMPORAL_TLS_CLIENT_KEY"),
        ({"TEMPORAL_TLS_CLIENT_KEY_DATA": "k"}, {}, "TEMPORAL_TLS_CLIENT_CERT"),
        ({"TEMPORAL_API_KEY": "secret-key", "TEMPORAL_TLS": "false"}, {}, "TEMPORAL_TLS"),
        ({"RETOLD_CODEC_KEYS": "secret-key"}, {}, "RETOLD_CODEC_KEYS"),
        ({"RETOLD_CODEC_KEYS_FILE": "/not/there"}, {}, "RETOLD_CODEC_KEYS"),
        ({}, {"qdrant_api_key": "secret-key"}, "RETOLD_QDRANT_API_KEY"),
        ({}, {"qdrant_api_key": "secret-key", "qdrant_url": "http://q.example.org:6333"}, "RETOLD_QDRANT_URL"),
        (CLOUD, {"development_approval": "just this once"}, "RETOLD_DEVELOPMENT_APPROVAL"),
    ],
)
def test_protected_by_half_is_refused(environment: dict[str, str], settings: dict[str, Any], refused: str) -> None:
    assert found(environment, **settings)[refused] is Severity.REFUSED
    with pytest.raises(HalfConfiguredError, match=refused) as error:
        require_whole(Settings(**settings), environment)
    assert "secret-key" not in str(error.value)


@pytest.mark.parametrize(
    ("environment", "settings", "named"),
    [
        (CLOUD, {}, {"TEMPORAL_TLS_CLIENT_CERT_PATH", "RETOLD_CODEC_KEYS"}),
        ({**CLOUD, "TEMPORAL_API_KEY": "k", "RETOLD_CODEC_KEYS": KEYS}, {}, set()),
        ({}, {"console": {"codec_origins": ["http://localhost:8233"]}}, {"RETOLD_CONSOLE__CODEC_ORIGINS"}),
        ({"RETOLD_CODEC_KEYS": KEYS}, {"console": {"codec_origins": ["http://localhost:8233"]}}, set()),
        ({}, {"store_url": REMOTE_STORE}, {"RETOLD_STORE_URL"}),
        ({}, {"store_url": REMOTE_STORE + "?sslmode=verify-full"}, set()),
        ({}, {"qdrant_url": "http://qdrant:6333"}, {"RETOLD_QDRANT_API_KEY"}),
        ({}, {"qdrant_url": "http://qdrant:6333", "qdrant_api_key": "k"}, set()),
        ({"TEMPORAL_ADDRESS": "[::1]:7233"}, {"development_approval": "for the demo"}, set()),
        ({}, {"capture_text": True}, {"RETOLD_CAPTURE_TEXT"}),
        ({}, {"console": IN_A_CONTAINER}, {"RETOLD_CONSOLE__BEHIND_LOOPBACK"}),
    ],
)
def test_what_is_open_is_named_and_starts_all_the_same(
    environment: dict[str, str], settings: dict[str, Any], named: set[str]
) -> None:
    assert found(environment, **settings) == dict.fromkeys(named, Severity.OPEN)
    require_whole(Settings(**settings), environment)


def test_settings_come_from_the_environment_before_secrets_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "retold_store_password").write_text("p@ss/word\n")
    (tmp_path / "postgres_password").write_text("somebody else's")
    file = tmp_path / "retold.toml"
    file.write_text('service_name = "by file"\nstore_url = "sqlite:///file.db"\n[worker]\nconcurrent_turns = 7\n')
    monkeypatch.setenv("RETOLD_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("RETOLD_CONFIG_FILE", str(file))
    monkeypatch.setenv("RETOLD_STORE_URL", REMOTE_STORE)
    monkeypatch.setenv("RETOLD_WORKER__BLOCKING_THREADS", "9")
    settings = Settings()
    assert settings.service_name == "by file"
    assert (settings.worker.concurrent_turns, settings.worker.blocking_threads) == (7, 9)
    assert settings.sql_url == "postgresql+psycopg://retold:p%40ss%2Fword@db.example.org/retold"
    assert "p@ss" not in repr(settings) and "p%40ss" not in settings.model_dump_json()


def test_a_key_of_a_role_is_a_file_as_kubernetes_mounts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is a link into a folder that is a link to the folder of this version."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "..2026" / "retold_judge__api_key").write_text("k-1\n")
    (tmp_path / "retold_judge__api_key").symlink_to("..data/retold_judge__api_key")
    monkeypatch.setenv("RETOLD_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("RETOLD_JUDGE__PROVIDER", "openai")
    monkeypatch.setenv("RETOLD_JUDGE__MODEL", "some-model")
    monkeypatch.setenv("RETOLD_UTILITY__ADMISSION_MODE", "hosted_judge")
    judge = Settings().judge
    assert judge.api_key is not None
    assert (judge.model, judge.api_key.get_secret_value()) == ("some-model", "k-1")


@pytest.mark.parametrize("variable", ["RETOLD_SECRETS_DIR", "RETOLD_CONFIG_FILE"])
def test_a_source_that_is_named_and_not_there_is_an_error(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "/not/there")
    with pytest.raises(SettingsSourceError, match=f"{variable} names /not/there"):
        Settings()


@pytest.mark.parametrize(
    ("store_url", "says"),
    [
        (None, "no store_url"),
        ("sqlite:///a.db", "no store_url"),
        ("postgresql+psycopg://u:p@h/d", "has a password too"),
    ],
)
def test_a_password_without_a_place_is_refused(store_url: str | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings(store_url=store_url, store_password="secret")


def test_a_judge_that_does_not_fit_its_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="disagree"):
        Settings(utility=UtilityAwareConfig(gap_enabled=True, admission_mode=AdmissionMode.HOSTED_JUDGE))


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"build_id": "7f3a"}, "deployment_name: build_id is set and this is not"),
        ({"deployment_name": "retold"}, "build_id: deployment_name is set and this is not"),
        ({"deployment_name": "retold.eu", "build_id": "7f3a"}, "deployment_name"),
        ({"deployment_name": "retold", "build_id": " "}, "build_id"),
    ],
)
def test_workers_are_versioned_by_both_names_or_by_neither(given: dict[str, str], refused: str) -> None:
    with pytest.raises(ValidationError, match=refused):
        Settings(worker=WorkerSettings(**given))
