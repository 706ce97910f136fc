"""Names derived from a request: each is a function of what the host sent and of nothing else (design 3.6)."""

from __future__ import annotations

import hashlib
import json
import uuid
from urllib.parse import quote

from retold.contracts.record import RecordRef
from retold.contracts.turn import Principal, TurnRequest

_MAX_READABLE = 700
_SAID = {"principal", "session_id", "turn_id", "text", "public_context"}
_REVIEWS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:retold:review")
_DECISIONS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:retold:decision")


def turn_workflow_id(principal: Principal, session_id: str, turn_id: str) -> str:
    """The workflow id of a turn: injective over the four names, whatever characters they contain.

    Every name is percent-encoded, so the separator cannot occur inside one. Names too long to stay readable
    (a Temporal id is bounded) are replaced together by a SHA-256 digest under a prefix of its own.
    """
    return _injective_id("turn", principal.tenant, principal.user, session_id, turn_id)


def session_key(principal: Principal, session_id: str) -> str:
    """One string for a principal's session, injective over the three names."""
    return _injective_id("session", principal.tenant, principal.user, session_id)


def turn_ref(principal: Principal, session_id: str, turn_id: str, role: str) -> str:
    """The id of one stored text of a session: the user's words, the draft, or the final answer of a turn."""
    return _injective_id("said", principal.tenant, principal.user, session_id, turn_id, role)


def decision_id(workflow_id: str) -> str:
    """The decision's id: derived from the turn's workflow id, so that every attempt writes the same row."""
    return str(uuid.uuid5(_DECISIONS, workflow_id))


def review_id(record: RecordRef) -> str:
    """The review of one version of one record: whoever asks for it, however often, there is one."""
    return str(uuid.uuid5(_REVIEWS, f"{record.version}/{record.id}"))


def review_workflow_id(review_id: str) -> str:
    return _injective_id("review", review_id)


def request_digest(request: TurnRequest) -> str:
    """`sha256:` over whose turn it is and what was said. The same turn sent with another text has another digest.

    Options are left out: to send a turn again with a smaller budget is a retry, not another turn. Hosts in other
    languages compute it from the JSON object of these five members, keys sorted, no spaces, UTF-8 unescaped.
    """
    said = request.model_dump(mode="json", include=_SAID)
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _injective_id(kind: str, *names: str) -> str:
    readable = "/".join((kind, *(quote(name, safe="") for name in names)))
    if len(readable) <= _MAX_READABLE:
        return readable
    return f"{kind}-sha256/{hashlib.sha256(readable.encode()).hexdigest()}"
