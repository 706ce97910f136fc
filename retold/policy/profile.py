"""The ambient profile: reviewed standing instructions, the same bytes for every turn of a session (section 2)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from retold.contracts.record import MemoryRecord, RecordId
from retold.contracts.stages import ProfileBlock
from retold.contracts.turn import Principal
from retold.policy.ports import TurnStore
from retold.policy.rendering import check_delimiter, new_delimiter, untagged_line

_HEADING = "Standing instructions of this user, reviewed:"
_BLOCK_MAX_CHARS = 16_000

CountTokens = Callable[[str], int]
"""Tokens a text takes in the model it is for."""

_PIECES = re.compile(r"[A-Za-z]+|[ ]+|[^A-Za-z ]")


def estimated_tokens(text: str) -> int:
    """More tokens than a text takes, for where no tokenizer is installed; never less than one.

    A token is at most two letters of a Latin word, one digit or sign, or one byte of any other script: what a
    vocabulary that never saw the script does with it. Spaces between words belong to the words.
    """
    cost = 0
    for piece in _PIECES.findall(text):
        if piece.isascii() and piece.isalpha():
            cost += math.ceil(len(piece) / 2)
        else:
            cost += len(piece) - 1 if piece.startswith(" ") else len(piece.encode("utf-8", "surrogatepass"))
    return max(1, cost)


class ProfileAssembler:
    """Builds a session's profile on its first turn; every later turn, on any worker, opens with the stored block.

    Args:
        store: where ambient records come from and the session's block is kept.
        max_records: most records in a block.
        token_budget: most tokens of instructions in a block; the two delimiter lines and the heading are not charged.
        count_tokens: tokens of one instruction, as the line it is rendered as.
        new_delimiter: a fresh delimiter for each new block, 8 to 64 ASCII letters and digits.
    """

    def __init__(
        self,
        store: TurnStore,
        *,
        max_records: int = 8,
        token_budget: int = 400,
        count_tokens: CountTokens = estimated_tokens,
        new_delimiter: Callable[[], str] = new_delimiter,
    ) -> None:
        if max_records < 1 or token_budget < 1:
            raise ValueError(
                "max_records and token_budget must be at least 1; use profile_enabled=False for no profile"
            )
        self._store = store
        self._max_records = max_records
        self._token_budget = token_budget
        self._count_tokens = count_tokens
        self._new_delimiter = new_delimiter

    async def build(self, principal: Principal, session_id: str, at: datetime) -> ProfileBlock:
        """The block of a session that has none yet, assembled from what is ambient at `at`, then stored.

        Of two tasks that assemble at once, one is stored and both get that one. A failure raises; nothing empty is
        ever stored in its place. A user without ambient records gets an empty block, and it is stored as such.

        Raises:
            SessionOwnedByAnotherError: another user of the tenant owns this session.
        """
        records = await self._store.ambient_records(principal, at)
        return await self._store.keep_profile(principal, session_id, self.assemble(records))

    async def forget(self, principal: Principal, session_id: str) -> None:
        """Drop the stored block; the session's next turn assembles a new one."""
        await self._store.forget_profile(principal, session_id)

    def assemble(self, records: Sequence[MemoryRecord]) -> ProfileBlock:
        """The block a session would get of these ambient records. Nothing is stored."""
        delimiter = self._new_delimiter()
        check_delimiter(delimiter)
        kept: list[MemoryRecord] = []
        lines: list[str] = []
        tokens = 0
        truncated = False
        for record in _newest_first(records):
            line = _instruction(record.text, delimiter)
            if line is None:
                continue
            cost = self._count_tokens(line)
            fits = len(kept) < self._max_records and tokens + cost <= self._token_budget
            if not fits or len(_render([*lines, line], delimiter)) > _BLOCK_MAX_CHARS:
                truncated = True
                break
            kept.append(record)
            lines.append(line)
            tokens += cost
        if not kept:
            return ProfileBlock(truncated=truncated)
        return ProfileBlock(
            text=_render(lines, delimiter),
            records=tuple(record.ref for record in kept),
            tokens=tokens,
            truncated=truncated,
            delimiter=delimiter,
        )


def _newest_first(records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """By event time, then creation time, both newest first and a known event before an unknown; then by id."""
    ordered = sorted(records, key=lambda record: record.id)
    ordered.sort(key=lambda record: record.created_at, reverse=True)
    dated = [record for record in ordered if record.event_at is not None]
    undated = [record for record in ordered if record.event_at is None]
    dated.sort(key=lambda record: record.told_at, reverse=True)
    return dated + undated


def without_records(block: ProfileBlock, ids: Collection[RecordId]) -> ProfileBlock:
    """The block as it stands, less the instructions of these records: what forgetting leaves of a stored profile.

    Every other byte stays, the delimiter included, and so does the number of tokens that was counted when the block was
    assembled. The empty block, if nothing is left.

    Raises:
        ValueError: the block has not one line for each of its records, so none can be told apart.
    """
    kept = [ref for ref in block.records if ref.id not in ids]
    if len(kept) == len(block.records):
        return block
    if not kept:
        return ProfileBlock(truncated=block.truncated)
    opening, heading, *lines, closing = block.text.split("\n")
    if len(lines) != len(block.records):
        raise ValueError(f"a profile of {len(block.records)} records has {len(lines)} instructions")
    left = [line for line, ref in zip(lines, block.records, strict=True) if ref.id not in ids]
    text = "\n".join([opening, heading, *left, closing])
    return block.model_copy(update={"text": text, "records": tuple(kept)})


def _render(lines: Sequence[str], delimiter: str) -> str:
    return "\n".join([f"<profile {delimiter}>", _HEADING, *lines, f"</profile {delimiter}>"])


def _instruction(text: str, delimiter: str) -> str | None:
    """The line an instruction stands on; None if nothing of it can be seen."""
    shown = " ".join(untagged_line(text, delimiter).split())
    return f"- {shown}" if shown.strip("\u200c\u200d") else None
