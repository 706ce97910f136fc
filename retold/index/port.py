"""What an index of records must do. SQL is the truth; an index may lag, never leak, and says why it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import RecordId, RecordRef
from retold.contracts.turn import Principal
from retold.policy.ports import EmbedderIdentity
from retold.retrieval.ports import Hit, IndexQuery

PayloadValue = str | int | list[str]


class IndexUnavailableError(Exception):
    """The engine cannot answer now: not opened, locked by another process, unreachable, or failing."""


class DimensionMismatchError(ValueError):
    """A vector's length is not the collection's. Never worth a retry."""


class UnfilterableError(ValueError):
    """A filter that cannot be expressed. The query is refused, because without its filter it would widen."""


class UnindexableError(ValueError):
    """A point that no engine could answer from: not finite, or a zero vector."""


class EmbedderMismatchError(Exception):
    """The collection was built by another embedder than the one in use. Their vectors cannot be compared."""

    def __init__(self, stored: EmbedderIdentity | None, used: EmbedderIdentity, where: str) -> None:
        self.stored = stored
        self.used = used
        super().__init__(
            f"index {where} was built with {_named(stored)}, but the embedder in use is {_named(used)}: "
            "configure the embedder the index was built with (RETOLD_EMBEDDER__...), name the new one as the next "
            "(RETOLD_NEXT_EMBEDDER__...), and run `retold rebuild-index`: answers keep coming meanwhile"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPoint:
    """One record as it goes into an index: its vector, the text its words are taken from, and what is filtered by."""

    ref: RecordRef
    dense: NDArray[np.float32]
    text: str
    payload: Mapping[str, PayloadValue]


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """What an index holds of a record, for reconciling it with the store."""

    ref: RecordRef
    payload: Mapping[str, PayloadValue]


@dataclass(frozen=True, slots=True)
class ScannedPoint:
    """One point as the engine has it, whether or not it can be read as a record's."""

    key: str
    """The engine's own id of the point."""
    payload: Mapping[str, object]
    has_dense: bool
    terms: frozenset[int] | None
    """The ids of the words it is found by; None if it has no lexical vector."""


@dataclass(frozen=True, slots=True)
class ScanPage:
    """Points in the order of their keys, and where to go on; `after` is None on the last page."""

    points: tuple[ScannedPoint, ...]
    after: str | None


SCAN_PAGE = 128
"""Points of one page, vectors included: half a megabyte on the wire at 384 dimensions."""


class RecordIndex(Protocol):
    """A collection of record points. Every method may raise :class:`IndexUnavailableError`."""

    async def ensure(self, embedder: EmbedderIdentity) -> None:
        """Open the collection, or create it for this embedder. Must be called before anything else.

        Raises:
            EmbedderMismatchError: the collection belongs to another model, revision, runtime or dimension.
        """

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Write points, durable when this returns. The same points again change nothing.

        Raises:
            DimensionMismatchError, UnindexableError: a point is unusable; nothing of the batch was written.
        """

    async def delete(self, ids: Sequence[RecordId]) -> None:
        """Remove records, durable when this returns. Unknown ids are no error."""

    async def search(self, queries: Sequence[IndexQuery]) -> list[list[Hit]]:
        """Answer all queries with one engine call, a list per query, best first.

        Raises:
            DimensionMismatchError: a query vector does not fit the collection.
            UnfilterableError: an eligibility that cannot be turned into a filter.
        """

    async def count(self, principal: Principal | None = None) -> int:
        """How many records are indexed, whatever their state: of one principal, or of all."""

    async def fetch(self, ids: Sequence[RecordId]) -> dict[RecordId, StoredPoint]:
        """What is indexed under these ids. Ids that are not indexed are left out."""

    async def scan(self, after: str | None = None, principal: Principal | None = None) -> ScanPage:
        """The next :data:`SCAN_PAGE` points, of one principal or of all, in the order of their keys.

        Args:
            after: the last page's `after`; None begins at the beginning.
        """

    async def inspect(self, ids: Sequence[RecordId]) -> dict[RecordId, ScannedPoint]:
        """The points that lie under these records' keys, vectors included, whatever their payloads say."""

    async def points_of(self, principal: Principal) -> list[StoredPoint]:
        """Everything that is indexed of a principal, whatever its state, for reading back."""

    async def find_texts(self, principal: Principal, texts: Sequence[str]) -> dict[str, list[RecordId]]:
        """By text, the principal's points, whatever their state, that carry every word of it or that name it.

        Made for reading back what was forgotten: it looks at every point and asks no ranking. A text that nothing
        carries is left out.
        """

    async def delete_points(self, keys: Sequence[str]) -> None:
        """Remove points by the engine's own ids, durable when this returns: for those that name no record."""

    async def delete_principal(self, principal: Principal) -> None:
        """Remove everything of one principal, durable and read back when this returns."""

    async def healthy(self) -> bool:
        """Whether the engine answers. Never raises."""

    async def aclose(self) -> None:
        """Release the engine. The index cannot be used afterwards; closing twice is fine."""


def _named(identity: EmbedderIdentity | None) -> str:
    return "an unknown embedder" if identity is None else spelled(identity)


def spelled(identity: EmbedderIdentity) -> str:
    """An embedder as people read it."""
    return f"{identity.model} revision {identity.revision} on {identity.runtime}, {identity.dimension} dimensions"
