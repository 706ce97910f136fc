"""Changing and reading the kill switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.heartbeat import while_beating
from retold.contracts import names
from retold.contracts.switches import SwitchChange, SwitchesInForce, SwitchState
from retold.policy.limits import utc_now
from retold.policy.switches import SwitchBoard
from retold.store.switches import SwitchLedger


@dataclass(frozen=True)
class SwitchActivities:
    ledger: SwitchLedger
    board: SwitchBoard

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.change_switch, self.list_switches]

    @activity.defn(name=names.CHANGE_SWITCH)
    @while_beating
    async def change_switch(self, change: SwitchChange) -> SwitchState:
        changed = await self.ledger.change(change, at=utc_now())
        await self.board.read()  # this worker at once; the others with their next reading
        return changed

    @activity.defn(name=names.LIST_SWITCHES)
    @while_beating
    async def list_switches(self) -> SwitchesInForce:
        """What is off as this worker sees it, by row and by file."""
        await self.board.read()
        return self.board.in_force
