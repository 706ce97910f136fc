"""Running the command in this process, the way its console script does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from retold.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Retold = Callable[..., Ran]


@pytest.fixture
def retold(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Retold:
    """`retold(*arguments)`, away from whatever this machine's environment configures."""
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_PROFILE", "TEMPORAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "no-such-profile-file.toml"))
    monkeypatch.setenv("RETOLD_DATA_DIR", str(tmp_path / "data"))

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments)
        seen = capsys.readouterr()
        return Ran(code, seen.out, seen.err)

    return run
