"""The settings of retrieval, and their hash: part of a bundle, so that a change has to be certified again."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import Field

from retold.contracts._base import Contract, Name
from retold.contracts.record import RecordType
from retold.policy.ports import EmbedderIdentity

PIPELINE_REVISION = 2
"""Raised when the code of a stage changes what the same settings select."""

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=10)]
Count = Annotated[int, Field(strict=True, ge=1, le=512)]


class RetrievalConfig(Contract):
    """How candidates are generated, ranked and cut. Floors are the low ones, meant for a judge behind them."""

    scopes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)] = ("personal",)
    """Scopes a turn may read. A record of another scope is never a candidate."""
    dense_depth: Count = 64
    """Records asked of each generator, per gap."""
    lexical_depth: Count = 64
    entity_depth: Count = 32
    rrf_k: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 10
    """Small: the first ranks of a generator count far more than its tail."""
    dense_weight: Weight = 1.0
    lexical_weight: Weight = 1.0
    entity_weight: Weight = 0.3
    fused_depth: Count = 48
    """Records per gap that are kept after fusion; the rest could not get under the cap."""
    lexical_strength: Weight = 0.6
    """What the best match by words adds to a record's strength, as a share of the best cosine."""
    date_bonus: Share = 0.15
    """Added where the query names the month a record is about."""
    day_support: Share = 0.2
    """Share of the best other record of the same day that is added to a record's strength."""
    other_subject_penalty: Share = 0.2
    """Taken off the strength of a record about somebody the query does not speak of."""
    freshness_half_life_days: Annotated[float, Field(gt=0)] = 30.0
    """Episodic records only: their strength halves in this time, down to `freshness_floor` of it."""
    freshness_floor: Share = 0.5
    dense_floors: dict[RecordType, Share] = {kind: 0.15 for kind in RecordType}
    """Least cosine of a record that only nearness of meaning found. Depends on the embedder: these fit MiniLM."""
    unheard_floor: Share = 0.25
    """The same, for a query of which no word and no name occurs in anything stored: it is likely noise."""
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
