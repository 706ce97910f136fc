"""What the doctor makes of the outbox: waiting is fine, waiting long or being refused is not."""

from __future__ import annotations

from typing import cast

import pytest

from retold import examination
from retold.contracts.indexing import OutboxLag
from retold.store.engine import StoreUnavailableError
from retold.store.store import Store


class Lagging:
    def __init__(self, lag: OutboxLag | None) -> None:
        self._lag = lag

    async def index_lag(self, at: object) -> OutboxLag:
        if self._lag is None:
            raise StoreUnavailableError("away")
        return self._lag


@pytest.mark.parametrize(
    ("lag", "ok", "found", "advice"),
    [
        (OutboxLag(pending=0), True, "0 changes", None),
        (OutboxLag(pending=900, oldest_age_s=59), True, "900 changes the index has yet to follow, the oldest", None),
        (OutboxLag(pending=1, oldest_age_s=3_700), False, "made 3,700 s ago", "away"),
        (
            OutboxLag(pending=5, oldest_age_s=9, set_aside=2, errors={"UnindexableError": 2}),
            False,
            "2 set aside (UnindexableError 2)",
            "retold reconcile",
        ),
        (None, False, "StoreUnavailableError", "store"),
    ],
)
async def test_the_outbox_is_judged_by_age_and_refusals(
    lag: OutboxLag | None, ok: bool, found: str, advice: str | None
) -> None:
    check = await examination._outbox(cast(Store, Lagging(lag)))
    assert check.ok is ok
    assert found in check.found
    assert (check.advice is None) if advice is None else (advice in (check.advice or ""))
