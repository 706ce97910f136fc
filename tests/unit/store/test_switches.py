"""Kill switches: off by either way, last known state while nothing can be read, shadow while nothing is known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from retold.contracts.config import Switches
from retold.contracts.switches import NOTHING_KNOWN, SwitchChange, SwitchName, SwitchState
from retold.contracts.turn import Principal
from retold.policy import switches as board_module
from retold.policy.switches import SwitchBoard
from retold.store.reviewers import OPERATORS
from retold.store.store import Store
from tests.unit.store.conftest import ADA, ELSEWHERE, NOON

ALL_ON = Switches()


def off(switch: SwitchName = SwitchName.REGENERATION, tenant: str | None = None, on: bool = False) -> SwitchChange:
    return SwitchChange(switch=switch, on=on, tenant=tenant, actor="sre", reason="the judge admits everything")


async def test_a_change_is_in_force_with_the_next_reading_for_its_tenant_only(store: Store) -> None:
    board = SwitchBoard(store.switches)
    await board.read()
    assert board.of(ADA) == ALL_ON
    await store.switches.change(off(tenant="acme"), at=NOON)
    assert board.of(ADA) == ALL_ON, "turns in flight and until the next reading keep what they began with"
    await board.read()
    assert board.of(ADA) == Switches(regeneration=False)
    assert board.of(ELSEWHERE) == ALL_ON


async def test_on_undoes_its_own_scope_only_and_everything_is_audited(store: Store) -> None:
    board = SwitchBoard(store.switches)
    for change in (off(), off(tenant="acme"), off(on=True)):
        await store.switches.change(change, at=NOON)
    await board.read()
    assert board.of(ADA) == Switches(regeneration=False), "off for the tenant although on again for all"
    assert board.of(ELSEWHERE) == ALL_ON
    for_all = await store.audit_events(OPERATORS)
    for_acme = await store.audit_events(Principal(tenant="acme", user=OPERATORS.user))
    assert [(event.event, event.actor) for event in for_all] == [("switch.off", "sre"), ("switch.on", "sre")]
    assert for_all[1].before == {"on": False, "tenant": None}
    assert [event.reason for event in for_acme] == ["the judge admits everything"]


class Broken:
    """A store that is away for as long as it is told to be."""

    def __init__(self, states: Sequence[SwitchState] = (), error: Exception | None = None, hangs: bool = False) -> None:
        self.states, self.error, self.hangs = states, error, hangs

    async def switches(self) -> Sequence[SwitchState]:
        if self.hangs:
            await asyncio.sleep(60)
        if self.error is not None:
            raise self.error
        return self.states

    async def note_switch_file(self, states: Sequence[SwitchState]) -> None:
        raise AssertionError("nothing to audit")


@pytest.mark.parametrize("hangs", [False, True])
async def test_while_the_store_is_away_the_last_known_state_holds(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "READ_LIMIT_MS", 30.0)
    now_s = 100.0
    state = SwitchState(**off(SwitchName.GAP).model_dump(), changed_at=NOON)
    store = Broken([state])
    board = SwitchBoard(store, clock_s=lambda: now_s)
    assert (board.of(ADA), board.staleness_s) == (NOTHING_KNOWN, None), "before the first reading: shadow"
    await board.read()
    store.hangs, store.error = hangs, ConnectionError("away")
    now_s = 400.0
    await board.read()
    assert board.of(ADA) == Switches(gap=False)
    assert board.staleness_s == 300.0


async def test_a_worker_that_never_reached_the_store_stays_in_shadow() -> None:
    board = SwitchBoard(Broken(error=ConnectionError("away")))
    await board.read()
    assert board.of(ADA) == NOTHING_KNOWN
    assert not board.of(ADA).regeneration


async def test_a_file_switches_off_without_store_or_temporal_and_is_audited_once_the_store_is_back(
    store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "switches.json"
    file.write_text(json.dumps([off(SwitchName.PROFILE).model_dump(mode="json") | {"changed_at": NOON.isoformat()}]))
    away = SwitchBoard(Broken(error=ConnectionError("away")), file)
    await away.read()
    assert away.of(ADA) == Switches(profile=False, regeneration=False)
    for _ in range(2):  # two workers, the same file
        back = SwitchBoard(store.switches, file)
        await back.read()
        await back.read()
        assert back.of(ADA) == Switches(profile=False)
    events = await store.audit_events(OPERATORS)
    assert [(event.event, event.actor, event.reason) for event in events] == [
        ("switch.off_by_file", "sre", "the judge admits everything")
    ]
    file.unlink()
    await back.read()
    assert back.of(ADA) == ALL_ON


@pytest.mark.parametrize("content", ["", "{", '[{"switch": "everything"}]', '[{"switch": "gap", "on": false}]'])
async def test_a_file_nobody_can_read_means_shadow_until_it_is_mended(
    store: Store, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "switches.json"
    file.write_text(content)
    board = SwitchBoard(store.switches, file)
    await board.read()
    assert board.of(ADA) == NOTHING_KNOWN
    file.write_text("[]")
    await board.read()
    assert board.of(ADA) == ALL_ON
