"""Names derived from a request: each is a function of what the host sent and of nothing else (design 3.6)."""

from __future__ import annotations

import hashlib
import json
import uuid
from urllib.parse import quote

from retold.contracts.record import RecordRef
from retold.contracts.turn import Principal, TurnRequest

OPERATION_KINDS = ("import", "operation", "end-session", "remember", "extract", "activate", "records")
"""What the ids of operations on a principal begin with."""

_MAX_READABLE = 700
_SAID = {"principal", "session_id", "turn_id", "text", "public_context"}
_REVIEWS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:retold:review")
_DECISIONS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:retold:decision")


def turn_workflow_id(principal: Principal, session_id: str, turn_id: str) -> str:
    """The workflow id of a turn: injective over the four names, whatever characters they contain.

    Every name is percent-encoded, so the separator cannot occur inside one. Names too long to stay readable
    (a Temporal id is bounded) are replaced by two SHA-256 digests, of the principal and of everything, under a
    prefix of its own: the executions of a principal are found by how their ids begin.
    """
    return _id_of_principal("turn", principal, session_id, turn_id)


def operation_workflow_id(kind: str, principal: Principal, token: str) -> str:
    """The workflow id of an operation on one principal's memory; `token` tells it from the others of its kind.

    Only so is it found when the principal is forgotten without looking into every execution there is.
    """
    if kind not in OPERATION_KINDS:
        raise ValueError(f"{kind!r} is no kind of operation: add it to OPERATION_KINDS, by which executions are found")
    return _id_of_principal(kind, principal, token)


def principal_prefixes(principal: Principal) -> tuple[str, ...]:
    """How the ids of a principal's executions begin; nobody else's do. They hold no character to escape."""
    readable = _encoded(principal.tenant, principal.user)
    return tuple(
        prefix
        for kind in ("turn", *OPERATION_KINDS)
        for prefix in (f"{kind}/{readable}/", f"{kind}-sha256/{_digest(readable)}/")
    )


def session_prefix(principal: Principal, session_id: str) -> str:
    """How the readable workflow ids of one session's turns begin."""
    return f"turn/{_encoded(principal.tenant, principal.user, session_id)}/"


def forget_workflow_id(principal: Principal, what: str, subject_id: str) -> str:
    """The same asked twice at once is one forgetting. Its history holds no text, so no forgetting looks for it."""
    return _id_of_principal("forget", principal, what, subject_id)


def session_key(principal: Principal, session_id: str) -> str:
    """One string for a principal's session, injective over the three names."""
    return _id_of_principal("session", principal, session_id)


def turn_ref(principal: Principal, session_id: str, turn_id: str, role: str) -> str:
    """The id of one stored text of a session: the user's words, the draft, or the final answer of a turn."""
    return _id_of_principal("said", principal, session_id, turn_id, role)


def decision_id(workflow_id: str) -> str:
    """The decision's id: derived from the turn's workflow id, so that every attempt writes the same row."""
    return str(uuid.uuid5(_DECISIONS, workflow_id))


def review_id(record: RecordRef) -> str:
    """The review of one version of one record: whoever asks for it, however often, there is one."""
    return str(uuid.uuid5(_REVIEWS, f"{record.version}/{record.id}"))


def review_workflow_id(review_id: str) -> str:
    return f"review/{review_id}"


def request_digest(request: TurnRequest) -> str:
    """`sha256:` over whose turn it is and what was said. The same turn sent with another text has another digest.

    Options are left out: to send a turn again with a smaller budget is a retry, not another turn. Hosts in other
    languages compute it from the JSON object of these five members, keys sorted, no spaces, UTF-8 unescaped.
    """
    said = request.model_dump(mode="json", include=_SAID)
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _id_of_principal(kind: str, principal: Principal, *names: str) -> str:
    owner = _encoded(principal.tenant, principal.user)
    readable = f"{kind}/{owner}/{_encoded(*names)}"
    if len(readable) <= _MAX_READABLE:
        return readable
    return f"{kind}-sha256/{_digest(owner)}/{_digest(readable)}"


def _encoded(*names: str) -> str:
    return "/".join(quote(name, safe="") for name in names)


def _digest(readable: str) -> str:
    return hashlib.sha256(readable.encode()).hexdigest()
