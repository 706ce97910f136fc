"""The ambient profile: reviewed standing instructions, the same bytes for every turn of a session (section 2)."""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime

from retold.contracts.record import MemoryRecord
from retold.contracts.stages import ProfileBlock
from retold.contracts.turn import Principal
from retold.policy.ports import TurnStore

_HEADING = "Standing instructions of this user, reviewed:"
_BLOCK_MAX_CHARS = 16_000
_JOINERS = "\u200c\u200d"
"""The two invisible characters that words and emoji need; all others of their kind are dropped."""


def approximate_tokens(text: str) -> int:
    """About four characters a token, at least one."""
    return max(1, len(text) // 4)


def random_delimiter() -> str:
    return secrets.token_hex(8)


class ProfileAssembler:
    """Builds a session's profile on its first turn; every later turn, on any worker, opens with the stored block.

    Args:
        store: where ambient records come from and the session's block is kept.
        max_records: most records in a block.
        token_budget: most tokens of instructions in a block; the two delimiter lines and the heading are not charged.
        count_tokens: tokens of one instruction.
        new_delimiter: a fresh delimiter for each new block, at most 64 characters.
    """

    def __init__(
        self,
        store: TurnStore,
        *,
        max_records: int = 8,
        token_budget: int = 400,
        count_tokens: Callable[[str], int] = approximate_tokens,
        new_delimiter: Callable[[], str] = random_delimiter,
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
        return await self._store.keep_profile(principal, session_id, self._assemble(records))

    async def forget(self, principal: Principal, session_id: str) -> None:
        """Drop the stored block; the session's next turn assembles a new one."""
        await self._store.forget_profile(principal, session_id)

    def _assemble(self, records: Sequence[MemoryRecord]) -> ProfileBlock:
        if not (delimiter := self._new_delimiter()):
            raise ValueError("new_delimiter must return at least one character")
        kept: list[MemoryRecord] = []
        lines: list[str] = []
        tokens = 0
        truncated = False
        for record in _newest_first(records):
            line = _neutral(record.text, delimiter)
            if not line:
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


def _render(lines: Sequence[str], delimiter: str) -> str:
    instructions = "\n".join(f"- {line}" for line in lines)
    return f"<profile {delimiter}>\n{_HEADING}\n{instructions}\n</profile {delimiter}>"


def _neutral(text: str, delimiter: str) -> str:
    """The text as one line that cannot end its block: no line breaks, no control or invisible formatting
    characters, and nothing that reads as the delimiter."""
    visible = "".join(_visible(char) for char in text)
    while delimiter in visible:
        visible = visible.replace(delimiter, "")
    return " ".join(visible.split())


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Cc", "Zl", "Zp"):
        return " "
    return "" if category == "Cf" and char not in _JOINERS else char
