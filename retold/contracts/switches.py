"""Kill switches: who switched what off, for whom and why (design section 3.7). They can only take away."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from retold.contracts._base import Contract, Name, UtcTime, without_secret
from retold.contracts.config import Switches

SWITCH_REASON_MAX_CHARS = 500


class SwitchName(StrEnum):
    """What can be switched off. `regeneration` off is shadow: decide and log, never regenerate."""

    GAP = "gap"
    ADMISSION = "admission"
    REGENERATION = "regeneration"
    PROFILE = "profile"


class SwitchChange(Contract):
    """Switch one stage off or on again, for one tenant or for all. An `on` undoes an `off` of the same scope only."""

    switch: SwitchName
    on: bool
    tenant: Name | None = None
    """None: all tenants."""
    actor: Name
    reason: Annotated[str, Field(min_length=1, max_length=SWITCH_REASON_MAX_CHARS), AfterValidator(without_secret)]


class SwitchState(Contract):
    """One switch as it stands: the last change of its scope."""

    switch: SwitchName
    on: bool
    tenant: Name | None = None
    actor: Name
    reason: str
    changed_at: UtcTime


class SwitchesInForce(Contract):
    """All switches that are off, from the store or from a file, and how it is known."""

    off: tuple[SwitchState, ...] = ()

    def of(self, tenant: str) -> Switches:
        """What is in force for one tenant: off for all, or off for this one."""
        switched_off = {state.switch.value for state in self.off if state.tenant in (None, tenant)}
        return Switches.model_validate({switch.value: switch.value not in switched_off for switch in SwitchName})


NOTHING_KNOWN = Switches(regeneration=False)
"""Before the switches could be read once: shadow. A worker that cannot know never puts memory into an answer."""
