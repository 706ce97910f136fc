"""What retrieval asks of an index and of the store. `retold.index` and `retold.store` implement it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RecordType
from retold.contracts.turn import Principal


class Generator(StrEnum):
    """Who proposed a record: nearness of meaning, shared words, or a shared name."""

    DENSE = "dense"
    LEXICAL = "lexical"
    ENTITY = "entity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    """Whose records, in which scopes, current at what time. There is no query without one.

    An adapter refuses (`UnfilterableError`) a blank name, an empty list of scopes or a naive time: a filter that
    cannot be expressed never widens.
    """

    principal: Principal
    scopes: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseQuery:
    """The `limit` records nearest to `vector` (unit length) by cosine."""

    eligible: Eligibility
    limit: int
    vector: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class LexicalQuery:
    """The `limit` records that share most of the words of `text` (BM25). The text is never query syntax."""

    eligible: Eligibility
    limit: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityQuery:
    """The `limit` records nearest to `vector` among those that carry one of the `names` (folded, exact)."""

    eligible: Eligibility
    limit: int
    names: tuple[str, ...]
    vector: NDArray[np.float32]


IndexQuery = DenseQuery | LexicalQuery | EntityQuery


class Hit(NamedTuple):
    """One record as one generator found it. Higher scores are better in every generator and every adapter.

    A search of three gaps makes hundreds: a tuple is built in a third of the time of a frozen dataclass.
    """

    ref: RecordRef
    principal: Principal
    score: float
    type: RecordType
    subject: str
    told_at: datetime
    sketch: bytes
    """The record's dense vector rounded to int8, so that near-duplicates are told without a second engine call."""

    def scored(self, score: float) -> Hit:
        """The same record as another generator scored it."""
        return Hit(self.ref, self.principal, score, self.type, self.subject, self.told_at, self.sketch)


class RecordSearch(Protocol):
    """The part of an index that retrieval needs."""

    async def search(self, queries: Sequence[IndexQuery]) -> list[list[Hit]]:
        """Answer all queries with one engine call, a list per query, best first.

        Raises:
            IndexUnavailableError: the engine cannot answer now.
            DimensionMismatchError: a query vector does not fit the collection.
            UnfilterableError: an eligibility that cannot be turned into a filter.
        """


class CurrentRecords(Protocol):
    """The part of the store that retrieval needs: the truth about what the index found."""

    async def load_current(
        self, principal: Principal, refs: Sequence[RecordRef], at: datetime
    ) -> Mapping[RecordId, MemoryRecord]:
        """Of the named versions, those still current, conditional and this principal's. Others are left out."""
