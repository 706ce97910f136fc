"""How often somebody may try to sign in: per address and in all, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

WINDOW_S = 60.0
PER_ADDRESS = 10
IN_ALL = 200
"""A token has 256 bits and is not guessed at any speed: these bounds keep the store from being asked for nothing."""
ADDRESSES_KEPT = 4_096


@dataclass
class _Count:
    since: float
    tries: int = 0


class Attempts:
    """Counts tries in windows of a minute. Not safe for threads; the page runs on one event loop."""

    def __init__(self, *, per_address: int = PER_ADDRESS, in_all: int = IN_ALL, kept: int = ADDRESSES_KEPT) -> None:
        self._per_address = per_address
        self._in_all = in_all
        self._kept = kept
        self._of_all = _Count(since=0.0)
        self._of: OrderedDict[str, _Count] = OrderedDict()

    def may_try(self, address: str, now: float) -> bool:
        """Count one try at `now` (monotonic seconds); False if it is one too many, until the window is over."""
        name = _network(address)
        own = self._of.pop(name, None) or _Count(since=now)
        self._of[name] = own
        while len(self._of) > self._kept:
            self._of.popitem(last=False)
        # An address that is over its own bound does not use up everybody's.
        return _counted(own, now, self._per_address) and _counted(self._of_all, now, self._in_all)

    def __len__(self) -> int:
        return len(self._of)


def _counted(count: _Count, now: float, most: int) -> bool:
    if now - count.since >= WINDOW_S:
        count.since, count.tries = now, 0
    count.tries += 1
    return count.tries <= most


def _network(address: str) -> str:
    """One customer of an IPv6 network has more addresses than anybody could count: the /64 stands for them."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    return str(int(parsed) >> 64) if isinstance(parsed, IPv6Address) else str(parsed)
