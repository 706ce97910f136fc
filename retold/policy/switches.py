"""Which stages are switched off, known to every worker without asking at the turn (design section 3.7).

There are two ways to switch something off, and each works without the other: a row in the store, written through
Temporal or straight, and a file beside the worker (a mounted ConfigMap, say), for the day when store and Temporal are
both away. Whatever either says is off is off. What was read last stays in force while nothing can be read; before the
first reading the answer is shadow.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from retold.contracts.config import Switches
from retold.contracts.switches import NOTHING_KNOWN, SwitchesInForce, SwitchState
from retold.contracts.turn import Principal
from retold.policy.limits import LimitReachedError, within

logger = logging.getLogger(__name__)

READ_LIMIT_MS = 2_000.0

_FILE = TypeAdapter(tuple[SwitchState, ...])


class SwitchStore(Protocol):
    async def switches(self) -> Sequence[SwitchState]:
        """The last change of every switch and scope, on or off."""

    async def note_switch_file(self, states: Sequence[SwitchState]) -> None:
        """Audit switches that were set by file. The same state again writes nothing."""


@dataclass
class SwitchBoard:
    """What this worker knows of the switches. `of` never waits; `keep_reading` keeps it fresh.

    Args:
        store: where changes are kept.
        file: states that are off whatever the store says; need not exist.
        clock_s: monotonic seconds.
    """

    store: SwitchStore
    file: Path | None = None
    clock_s: Callable[[], float] = time.monotonic
    _from_store: SwitchesInForce | None = None
    _from_file: SwitchesInForce = field(default_factory=SwitchesInForce)
    _file_is_readable: bool = True
    _unaudited: tuple[SwitchState, ...] = ()
    _read_at_s: float | None = None

    def of(self, principal: Principal) -> Switches:
        """The switches a turn of this principal starts with, and keeps to its end."""
        by_file = self._from_file.of(principal.tenant)
        by_store = NOTHING_KNOWN if self._from_store is None else self._from_store.of(principal.tenant)
        both = _both_on(by_file, by_store)
        return both if self._file_is_readable else _both_on(both, NOTHING_KNOWN)

    @property
    def in_force(self) -> SwitchesInForce:
        """Everything that is off, each with who and why."""
        by_store = () if self._from_store is None else self._from_store.off
        return SwitchesInForce(off=(*self._from_file.off, *by_store))

    @property
    def staleness_s(self) -> float | None:
        """Seconds since the store was read; None: it never was."""
        return None if self._read_at_s is None else self.clock_s() - self._read_at_s

    async def read(self) -> None:
        """Look at both. A source that cannot be read keeps what it said before, and says so in the log."""
        self._read_file()
        try:
            states = await within(READ_LIMIT_MS, self.store.switches())
            self._from_store = SwitchesInForce(off=tuple(state for state in states if not state.on))
            self._read_at_s = self.clock_s()
            await within(READ_LIMIT_MS, self._audit_file())
        except LimitReachedError:
            logger.warning("kill switches: the store did not answer in %d ms; %s", READ_LIMIT_MS, self._what_holds())
        except Exception as error:  # noqa: BLE001 - whatever the store raises, the switches known last stay in force
            logger.warning("kill switches: %s: %s; %s", type(error).__name__, error, self._what_holds())

    async def keep_reading(self, every_s: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Read again and again until cancelled. A change is in force on this worker at most `every_s` later."""
        while True:
            await self.read()
            await sleep(every_s)

    def _read_file(self) -> None:
        if self.file is None:
            return
        try:
            states = _FILE.validate_json(self.file.read_bytes())
        except FileNotFoundError:
            states = ()
        except (OSError, ValidationError) as error:
            # Somebody wanted something off and mistyped it: the safe reading is that memory stays out of answers.
            self._file_is_readable = False
            logger.error("kill switches: %s cannot be read (%s): shadow until it can", self.file, type(error).__name__)
            return
        self._file_is_readable = True
        before, self._from_file = self._from_file, SwitchesInForce(off=tuple(each for each in states if not each.on))
        if before != self._from_file:
            self._unaudited = states
            logger.warning("kill switches by file: off are %s", [state.switch.value for state in self._from_file.off])

    async def _audit_file(self) -> None:
        if self._unaudited:
            await self.store.note_switch_file(self._unaudited)
            self._unaudited = ()

    def _what_holds(self) -> str:
        if self._from_store is None:
            return "nothing is known of them yet: shadow"
        return f"what was known {self.staleness_s or 0:.0f} s ago holds"


def _both_on(one: Switches, other: Switches) -> Switches:
    return Switches.model_validate(
        {name: getattr(one, name) and getattr(other, name) for name in Switches.model_fields}
    )
