"""What a deployment says by environment arrives as what it means."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from retold.contracts.config import UtilityAwareConfig
from retold.settings import Settings


def test_numbers_of_the_path_can_be_given_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "UTILITY__DRAFT_TIMEOUT_MS": "3000",
        "UTILITY__LATENCY_BUDGET_MS": "800",
        "UTILITY__MAX_GAPS": "2",
        "UTILITY__SHADOW": "false",
        "RETRIEVAL__MAX_TOKENS": "900",
    }.items():
        monkeypatch.setenv(f"RETOLD_{name}", value)
    settings = Settings()
    assert (settings.utility.draft_timeout_ms, settings.utility.latency_budget_ms) == (3_000, 800)
    assert (settings.utility.max_gaps, settings.utility.shadow) == (2, False)
    assert settings.retrieval.max_tokens == 900


def test_one_field_said_otherwise_leaves_the_others_as_they_were(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = Settings()
    monkeypatch.setenv("RETOLD_UTILITY__SHED_AFTER_MS", "2000")
    monkeypatch.setenv("RETOLD_WORKER__CONCURRENT_TURNS", "48")
    settings = Settings()
    assert settings.utility == before.utility.model_copy(update={"shed_after_ms": 2_000})
    assert settings.worker == before.worker.model_copy(update={"concurrent_turns": 48})
    file = tmp_path / "retold.toml"
    file.write_text("[utility]\nshed_after_ms = 3000\nlatency_budget_ms = 800\n")
    monkeypatch.setenv("RETOLD_CONFIG_FILE", str(file))
    assert Settings().utility == before.utility.model_copy(update={"shed_after_ms": 2_000, "latency_budget_ms": 800})
    whole = UtilityAwareConfig(shadow=False)
    assert Settings(utility=whole).utility == whole, "what is given whole, in code, is meant whole"


@pytest.mark.parametrize("value", ["soon", "-5", "1.5", "0x10", "²", ""])
def test_what_is_no_whole_number_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("RETOLD_UTILITY__GAP_TIMEOUT_MS", value)
    with pytest.raises(ValidationError, match="gap_timeout_ms"):
        Settings()


def test_what_a_bundle_is_called_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETOLD_UTILITY__BUNDLE", '{"taxonomy": "7"}')
    assert Settings().utility.bundle == {"taxonomy": "7"}
