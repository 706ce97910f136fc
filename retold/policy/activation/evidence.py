"""Finds where the principal said what a record holds, in the stored turns, without trusting whoever wrote the record."""

from __future__ import annotations

from collections.abc import Sequence

from retold.contracts.activation import EvidenceMethod, VerifiedEvidence
from retold.contracts.extraction import OwnTurn
from retold.contracts.record import MemoryRecord
from retold.policy.ports import Embedder


async def find_evidence(
    record: MemoryRecord, turns: Sequence[OwnTurn], embedder: Embedder | None
) -> VerifiedEvidence | None:
    """The span of the principal's own turns that says what the record says; the latest one, if several do.

    Args:
        turns: the principal's own turns and nothing else, in the order they were said.
        embedder: locates a paraphrase where words alone do not; None: words alone.
    """
    for turn in reversed(turns):
        start = turn.text.find(record.text)
        if start >= 0:
            return _evidence(turn, start, start + len(record.text), EvidenceMethod.EXACT)
    return None


def _evidence(turn: OwnTurn, start: int, end: int, method: EvidenceMethod, similarity: float = 1.0) -> VerifiedEvidence:
    return VerifiedEvidence(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        turn_ref=turn.turn_ref,
        span=turn.text[start:end],
        start=start,
        end=end,
        said_at=turn.said_at,
        method=method,
        similarity=similarity,
    )
