"""`retold switch` when things are down: straight into the store, and when that is away too, into the file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from retold.cli import main
from retold.client.encryption import UndecryptableError
from retold.policy.switches import SwitchBoard
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from tests.unit.store.conftest import ADA

OFF = ("switch", "off", "regeneration", "--reason", "the judge admits everything", "--actor", "sre")


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "1000")  # no path is broken in two
    monkeypatch.setenv("RETOLD_DATA_DIR", str(tmp_path))
    yield tmp_path


def test_without_temporal_it_goes_straight_into_the_store(
    nobody_answers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(migrated(nobody_answers))
    assert main(OFF) == 0
    assert "straight in the store: Temporal does not answer" in unwrapped(capsys)
    assert asyncio.run(in_force(nobody_answers)) == ["regeneration"]


def test_an_answer_nobody_here_has_keys_for_is_no_answer(
    nobody_answers: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[None]:
        raise UndecryptableError("this process has no codec keys")
        yield

    monkeypatch.setattr("retold.cli.switch.connected", connected)
    asyncio.run(migrated(nobody_answers))
    assert main(OFF) == 0
    assert "straight in the store: this process has no codec keys" in unwrapped(capsys)
    assert asyncio.run(in_force(nobody_answers)) == ["regeneration"]


def test_without_a_store_either_it_goes_into_the_file_and_a_worker_obeys_it(
    nobody_answers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(OFF) == 0
    said = unwrapped(capsys)
    assert "switches.json" in said and "Temporal does not answer" in said
    (state,) = json.loads((nobody_answers / "switches.json").read_text())
    assert (state["switch"], state["on"], state["actor"]) == ("regeneration", False, "sre")
    asyncio.run(migrated(nobody_answers))
    assert asyncio.run(in_force(nobody_answers)) == ["regeneration"]
    assert main(("switch", "on", "regeneration", "--reason", "over", "--file")) == 0
    assert asyncio.run(in_force(nobody_answers)) == []


def test_when_nothing_can_be_written_it_says_so_and_fails(
    nobody_answers: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (nobody_answers / "a file").touch()
    monkeypatch.setenv("RETOLD_SWITCH_FILE", str(nobody_answers / "a file" / "switches.json"))
    assert main(OFF) == 1
    assert "nothing could be switched" in capsys.readouterr().err


def test_a_blank_reason_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("switch", "off", "gap", "--reason", "")) == 1
    assert "reason" in capsys.readouterr().err


def unwrapped(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


async def migrated(data_dir: Path) -> None:
    engine = open_engine(f"sqlite:///{data_dir}/retold.db")
    await migrate(engine)
    engine.dispose()


async def in_force(data_dir: Path) -> list[str]:
    store = Store(open_engine(f"sqlite:///{data_dir}/retold.db"))
    board = SwitchBoard(store.switches, data_dir / "switches.json")
    await board.read()
    await store.close()
    switches = board.of(ADA)
    return [name for name in type(switches).model_fields if not getattr(switches, name)]
