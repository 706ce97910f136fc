"""What a running deployment finds when it looks at itself: the part of `retold doctor` only a worker can do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from retold.contracts.operations import Check, Deployment
from retold.index.port import RecordIndex
from retold.policy.limits import utc_now
from retold.policy.ports import Embedder
from retold.settings import Settings
from retold.store.store import Store

_CANARY = "the user's dentist appointment is on Tuesday"
LAG_MAX_S = 60
"""A change that waits longer is not waiting for its turn. Workers follow the outbox every five seconds."""

_NEAR, _FAR = "when do I see the dentist?", "how do I sort a list in Python?"


async def examine(
    settings: Settings, store: Store, index: RecordIndex, embedder: Embedder, identities: Mapping[str, str]
) -> Deployment:
    """Look at store, index, embedder and outbox. Never raises: what fails is a check that says so."""
    checks = [
        await _store(store),
        await _outbox(store),
        await _index(index),
        await _embedder(embedder),
        _serving(settings),
    ]
    return Deployment(
        checks=tuple(checks),
        identities=dict(identities),
        config=settings.utility.model_dump(mode="json"),
    )


async def _store(store: Store) -> Check:
    try:
        await store.ping()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the doctor is here to say so
        return Check(
            name="store",
            ok=False,
            found=f"does not answer ({type(error).__name__})",
            advice="check RETOLD_STORE_URL, the database's log and free disk space; drafts go out meanwhile",
        )
    return Check(name="store", ok=True, found="answers")


async def _outbox(store: Store) -> Check:
    try:
        lag = await store.index_lag(utc_now())
    except Exception as error:  # noqa: BLE001 - see above
        return Check(name="index outbox", ok=False, found=type(error).__name__, advice="see the check of the store")
    found = f"{lag.pending} changes the index has yet to follow"
    advice = None
    if lag.pending:
        found += f", the oldest made {lag.oldest_age_s:,.0f} s ago"
    if lag.set_aside:
        why = ", ".join(f"{error} {count}" for error, count in lag.errors.items())
        found += f"; {lag.set_aside} set aside ({why})"
        advice = "index or embedder refuses these: `retold reconcile` names the records, the worker's log says more"
    elif lag.oldest_age_s > LAG_MAX_S:
        advice = "the index or the embedder is away, or no worker follows it: read the worker's log"
    return Check(name="index outbox", ok=advice is None, found=found, advice=advice)


async def _index(index: RecordIndex) -> Check:
    if not await index.healthy():
        return Check(
            name="index",
            ok=False,
            found="does not answer",
            advice="check RETOLD_QDRANT_URL, or that no other process holds the embedded index",
        )
    return Check(name="index", ok=True, found=f"{await index.count()} records")


async def _embedder(embedder: Embedder) -> Check:
    """Near must be nearer than far: a runtime that changed under the same name would show here."""
    try:
        (stored,) = await embedder.embed_passages([_CANARY])
        near, far = await embedder.embed_queries([_NEAR, _FAR])
    except Exception as error:  # noqa: BLE001 - see above
        return Check(
            name="embedder", ok=False, found=type(error).__name__, advice="check RETOLD_EMBEDDER__… and its endpoint"
        )
    distance = float(np.dot(stored, near)), float(np.dot(stored, far))
    return Check(
        name="embedder",
        ok=distance[0] > distance[1],
        found=f"{embedder.identity.model}: near {distance[0]:.2f}, far {distance[1]:.2f}",
        advice=None if distance[0] > distance[1] else "it does not tell near from far: is it the model the index has?",
    )


def _serving(settings: Settings) -> Check:
    config = settings.utility
    if not config.gap_enabled:
        return Check(name="path", ok=True, found="off: drafts only (RETOLD_UTILITY__GAP_ENABLED=true turns it on)")
    mode = "serving" if config.serving else "shadow: decides and logs, never regenerates"
    return Check(name="path", ok=True, found=f"{mode}, admission {config.admission_mode.value}")
