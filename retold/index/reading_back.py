"""Reading an index back, point by point: for receipts, which must not trust what a search would leave out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from retold.contracts.record import RecordId
from retold.contracts.turn import Principal
from retold.index.points import read_stored
from retold.index.port import ScannedPoint, ScanPage, StoredPoint
from retold.index.sparse import Bm25Encoder
from retold.retrieval.text import fold


class _Scans(Protocol):
    async def scan(self, after: str | None = None, principal: Principal | None = None) -> ScanPage: ...


class ReadBack:
    """The reading-back methods of a :class:`~retold.index.port.RecordIndex`, over its `scan`."""

    async def points_of(self: _Scans, principal: Principal) -> list[StoredPoint]:
        stored = [read_stored(point.payload) async for point in every_point(self, principal)]
        return [each for each in stored if each is not None]

    async def find_texts(self: _Scans, principal: Principal, texts: Sequence[str]) -> dict[str, list[RecordId]]:
        bm25 = Bm25Encoder()
        wanted = {text: (frozenset(bm25.document(text).indices), fold(text)) for text in texts}
        found: dict[str, list[RecordId]] = {}
        async for point in every_point(self, principal):
            said = [fold(value) for value in _strings(point.payload)]
            for text, (terms, folded) in wanted.items():
                if (terms and terms <= (point.terms or frozenset())) or any(folded in value for value in said):
                    found.setdefault(text, []).append(str(point.payload.get("record_id", point.key)))
        return found


async def every_point(index: _Scans, principal: Principal | None = None) -> AsyncIterator[ScannedPoint]:
    """All points of one principal, or of everybody, page by page."""
    page = await index.scan(None, principal)
    while True:
        for point in page.points:
            yield point
        if page.after is None:
            return
        page = await index.scan(page.after, principal)


def _strings(payload: Mapping[str, object]) -> list[str]:
    values = [each for value in payload.values() for each in (value if isinstance(value, list) else [value])]
    return [each for each in values if isinstance(each, str)]
