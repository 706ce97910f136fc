"""Between records and points: what of a record is indexed, and how a point is read back."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RecordType
from retold.contracts.turn import Principal
from retold.index.filters import NO, UNBOUNDED_FROM, UNBOUNDED_UNTIL, YES, Key, utc_text
from retold.index.port import DimensionMismatchError, IndexPoint, PayloadValue, StoredPoint, UnindexableError
from retold.retrieval.fusion import sketch
from retold.retrieval.ports import Hit
from retold.retrieval.subject import PRINCIPAL
from retold.retrieval.text import fold

PointKey = TypeVar("PointKey", bound=Hashable)

_POINTS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:retold:index:point")

RETURNED_KEYS: tuple[str, ...] = (
    Key.TENANT, Key.USER, Key.RECORD_ID, Key.VERSION, Key.TYPE, Key.SUBJECT, Key.TOLD_AT, Key.SKETCH,
)  # fmt: skip
"""What an engine sends back with a hit. Record text is in no payload."""


def point_id(record_id: RecordId) -> str:
    """The point of a record: the same record always replaces itself."""
    return str(uuid.uuid5(_POINTS, record_id))


def passage(record: MemoryRecord) -> str:
    """The text that is embedded and whose words are indexed: the record's, with its date, as people ask by dates."""
    return f"{record.text} ({record.told_at.day} {record.told_at:%B} {record.told_at.year})"


def point(record: MemoryRecord, vector: NDArray[np.float32]) -> IndexPoint:
    """A record with its passage's vector, ready to be indexed."""
    return IndexPoint(
        ref=record.ref,
        dense=vector,
        text=passage(record),
        payload={**payload(record), Key.SKETCH: base64.b64encode(sketch(vector)).decode()},
    )


def payload(record: MemoryRecord) -> dict[str, PayloadValue]:
    """What a point says of its record, but for the sketch of its vector."""
    carried = [*record.entities, *([] if record.subject == PRINCIPAL else [record.subject])]
    return {
        Key.TENANT: record.tenant,
        Key.USER: record.user,
        Key.SCOPE: record.scope,
        Key.STATUS: record.status.value,
        Key.ACTIVATION: record.activation.value,
        Key.CONFLICTING: YES if record.conflicting else NO,
        Key.SUPERSEDED: YES if record.superseded_by is not None else NO,
        Key.VALID_FROM: utc_text(record.valid_from or UNBOUNDED_FROM),
        Key.VALID_UNTIL: utc_text(record.valid_until or UNBOUNDED_UNTIL),
        **_suspension(record),
        Key.NAMES: list(dict.fromkeys(fold(name) for name in carried)),
        Key.RECORD_ID: record.id,
        Key.VERSION: record.version,
        Key.TYPE: record.type.value,
        Key.SUBJECT: record.subject,
        Key.TOLD_AT: utc_text(record.told_at),
    }


NEVER_SUSPENDED: Mapping[str, str] = {
    Key.SUSPENDED_FROM: utc_text(UNBOUNDED_UNTIL),
    Key.SUSPENDED_UNTIL: utc_text(UNBOUNDED_FROM),
}
"""The suspension of a record that no temporary statement holds instead of: a span that no time lies in."""


def _suspension(record: MemoryRecord) -> Mapping[str, str]:
    if record.suspended_by is None:
        return NEVER_SUSPENDED
    return {
        Key.SUSPENDED_FROM: utc_text(record.suspended_from or UNBOUNDED_FROM),
        Key.SUSPENDED_UNTIL: utc_text(record.suspended_until or UNBOUNDED_UNTIL),
    }


def check_points(points: Sequence[IndexPoint], dimension: int) -> None:
    """Refuse a batch with an unusable vector before an engine stores half of it.

    Raises:
        DimensionMismatchError, UnindexableError: with the record's id.
    """
    for each in points:
        check_dimension(each.dense, dimension, f"record {each.ref.id}")
        if not np.isfinite(each.dense).all():
            raise UnindexableError(f"record {each.ref.id}: the embedder gave a vector with NaN or infinity")
        if not each.dense.any():
            raise UnindexableError(f"record {each.ref.id}: the embedder gave a zero vector, which is near nothing")


def check_dimension(vector: NDArray[np.float32], dimension: int, whose: str) -> None:
    """Raises DimensionMismatchError unless the vector is one row of this length."""
    if vector.shape != (dimension,):
        raise DimensionMismatchError(f"{whose}: vector of shape {vector.shape}, the collection holds ({dimension},)")


def read_hit(payload: Mapping[str, object] | None, score: float, principal: Principal) -> Hit | None:
    """A hit out of an engine's answer, or None if the point is not exactly this principal's or cannot be read.

    The engine already filtered by principal. This check costs nothing and holds even if it did not.
    """
    if payload is None or payload.get("tenant") != principal.tenant or payload.get("user") != principal.user:
        return None
    ref = _ref(payload)
    if ref is None:
        return None
    try:
        return Hit(
            ref,
            principal,
            score,
            RecordType(str(payload["type"])),
            str(payload["subject"]),
            datetime.fromisoformat(str(payload["told_at"])),
            binascii.a2b_base64(str(payload["sketch"]), strict_mode=True),
        )
    except (KeyError, ValueError):
        return None


class HitReader(Generic[PointKey]):
    """Reads each point of a batch once, however many of its queries found it."""

    def __init__(self, payloads: Mapping[PointKey, Mapping[str, object] | None]) -> None:
        self._payloads = payloads
        self._read: dict[tuple[str, str], dict[PointKey, Hit | None]] = {}

    def hits(self, scored: Iterable[tuple[PointKey, float]], principal: Principal) -> list[Hit]:
        """As :func:`read_hit` for each; a point that is not this principal's or has no payload is left out."""
        read = self._read.setdefault((principal.tenant, principal.user), {})
        found: list[Hit] = []
        for point, score in scored:
            if point not in read:
                read[point] = read_hit(self._payloads.get(point), score, principal)
            if (hit := read[point]) is not None:
                found.append(hit.scored(score))
        return found


def read_stored(payload: Mapping[str, object] | None) -> StoredPoint | None:
    """What a point says about its record; None if it does not say whose and which it is."""
    if payload is None or not isinstance(payload.get("tenant"), str) or not isinstance(payload.get("user"), str):
        return None
    ref = _ref(payload)
    return StoredPoint(ref, payload) if ref is not None else None  # type: ignore[arg-type]


def _ref(payload: Mapping[str, object]) -> RecordRef | None:
    """Which version of which record a point is; None if it does not say."""
    id, version = payload.get("record_id"), payload.get("version")
    try:
        return RecordRef(id=id, version=version) if isinstance(id, str) and isinstance(version, int) else None
    except ValueError:
        return None
