"""Stored profiles: taking a forgotten record out of them at once, though a session keeps its profile otherwise."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.record import RecordId
from retold.contracts.stages import ProfileBlock
from retold.contracts.turn import Principal
from retold.policy.profile import without_records
from retold.store.tables import SessionRow


def remove_records(session: Session, principal: Principal, ids: Collection[RecordId]) -> int:
    """Take these records' instructions out of every stored profile of the principal; how many profiles held one.

    The next turn of such a session sees the shorter block. A block that cannot be taken apart is dropped, and the
    next turn assembles a new one.
    """
    holding = session.scalars(
        select(SessionRow)
        .where(
            col(SessionRow.tenant) == principal.tenant,
            col(SessionRow.user_id) == principal.user,
            col(SessionRow.profile).is_not(None),
        )
        .with_for_update()
    )
    changed = 0
    for row in holding:
        block = ProfileBlock.model_validate(row.profile)
        if any(ref.id in ids for ref in block.records):
            row.profile = _without(block, ids)
            changed += 1
    return changed


def _without(block: ProfileBlock, ids: Collection[RecordId]) -> dict[str, object] | None:
    try:
        return without_records(block, ids).model_dump(mode="json")
    except ValueError:
        return None
