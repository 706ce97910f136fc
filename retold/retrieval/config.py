"""The settings of retrieval, and their hash: part of a bundle, so that a change has to be certified again."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import Field

from retold.contracts._base import Contract, Name
from retold.contracts.record import RecordType
from retold.policy.ports import EmbedderIdentity

PIPELINE_REVISION = 1
"""Raised when the code of a stage changes what the same settings select."""

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(strict=True, ge=1, le=512)]


class RetrievalConfig(Contract):
    """How candidates are generated, ranked and cut. Floors are the low ones, meant for a judge behind them."""

    scopes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)] = ("personal",)
    """Scopes a turn may read. A record of another scope is never a candidate."""
    dense_depth: Count = 64
    """Records asked of each generator, per gap."""
    lexical_depth: Count = 64
    entity_depth: Count = 32
    rrf_k: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 60
    dense_weight: Annotated[float, Field(ge=0, le=10)] = 1.0
    lexical_weight: Annotated[float, Field(ge=0, le=10)] = 1.0
    entity_weight: Annotated[float, Field(ge=0, le=10)] = 0.5
    ranked_depth: Count = 32
    """Records per gap that are looked up in the store after fusion: the rest could not get under the cap."""
    freshness_half_life_days: Annotated[float, Field(gt=0)] = 30.0
    """Episodic records only: their score halves in this time, down to `freshness_floor` of it."""
    freshness_floor: Share = 0.5
    other_subject_factor: Share = 0.5
    """What is left of the score of a record about somebody the query does not speak of."""
    dense_floors: dict[RecordType, Share] = {kind: 0.3 for kind in RecordType}
    """Least cosine of a record that only nearness of meaning found."""
    relative_floor: Share = 0.3
    """Least share of the best score of its generator, for each generator that found a record."""
    lexical_min_share: Share = 0.3
    """Least share of the query's content words in a record that only shared words found."""
    restatement_cosine: Share = 0.92
    max_candidates: Count = 8
    max_tokens: Annotated[int, Field(strict=True, ge=1)] = 1_500
    """For all candidates together; one costs `len(text) // 4 + 30`."""

    def config_hash(self, embedder: EmbedderIdentity) -> str:
        """First 16 hex digits of SHA-256 over settings, pipeline revision and embedder identity, canonically."""
        live = {
            "config": self.model_dump(mode="json"),
            "embedder": embedder.model_dump(mode="json"),
            "pipeline": PIPELINE_REVISION,
        }
        canonical = json.dumps(live, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]
