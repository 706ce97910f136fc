"""A worker that is asked for models it does not have says so, by the names of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from retold.models import installed
from retold.models.installed import ModelsMissingError, require_models
from retold.settings import Settings

HOSTED: dict[str, Any] = {"provider": "openai", "model": "some-model"}
EMBEDDINGS = {"kind": "openai", "base_url": "https://models.example.org/v1"}
ALL_HOSTED: dict[str, Any] = {
    "serving": HOSTED,
    "planner": HOSTED,
    "judge": HOSTED,
    "embedder": EMBEDDINGS,
    "utility": {"gap_enabled": True, "admission_mode": "hosted_judge"},
}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, ["RETOLD_SERVING__PROVIDER", "RETOLD_EMBEDDER__KIND", "RETOLD_PLANNER__PROVIDER", "RETOLD_JUDGE__PROV"]),
        ({**ALL_HOSTED, "embedder": {"kind": "minilm"}}, ["RETOLD_EMBEDDER__KIND"]),
        ({**ALL_HOSTED, "next_embedder": {"kind": "minilm"}}, ["RETOLD_NEXT_EMBEDDER__KIND"]),
        ({**ALL_HOSTED, "planner": {}}, ["RETOLD_PLANNER__PROVIDER"]),
        (ALL_HOSTED, []),
    ],
)
def test_without_the_small_models_every_setting_that_asks_for_one_is_named(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], named: list[str]
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda package: None)
    if not named:
        require_models(Settings(**settings))
        return
    with pytest.raises(ModelsMissingError) as refused:
        require_models(Settings(**settings))
    said = str(refused.value)
    assert [name for name in named if name not in said] == []
    assert said.count("RETOLD_") == sum(2 if "JUDGE" in name else 1 for name in named)


def test_where_they_are_installed_nothing_is_missing() -> None:
    require_models(Settings())
