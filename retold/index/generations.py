"""Generations of the index: one answers, another may be built beside it, and a retired one goes when nobody reads it.

A generation is a collection on a server or a folder here, and belongs to one embedder. Which of them serves is one
pointer, moved in one step: an alias on a server, a small file beside the folders. A worker binds to the generation
the pointer names when it starts and stays with it, because its bundle was certified with that embedder; after a
switch, workers move by being restarted. Until the last of them has, the changes of records are followed into both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection as AnyOf
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from retold.contracts.indexing import Generation, GenerationRole
from retold.contracts.record import RecordId
from retold.contracts.turn import Principal
from retold.index.collection import Collection
from retold.index.port import (
    EmbedderMismatchError,
    IndexPoint,
    IndexUnavailableError,
    RecordIndex,
    ScannedPoint,
    ScanPage,
    StoredPoint,
    spelled,
)  # fmt: skip
from retold.index.reading_back import ReadBack
from retold.policy.ports import Embedder, EmbedderIdentity
from retold.retrieval.ports import Hit, IndexQuery

logger = logging.getLogger(__name__)


class NotFollowedError(IndexUnavailableError):
    """This worker cannot write to a generation that others will answer from. Its changes are left to other workers."""


class RebuildRefusedError(ValueError):
    """There is nothing to build, or not any more: the message says what to do."""


class IndexHome(Protocol):
    """Where generations live. Every method may raise IndexUnavailableError."""

    exclusive: bool
    """Whether no other process can reach these generations while this one does."""

    def index(self, name: str) -> RecordIndex:
        """A generation, not opened yet."""

    async def roles(self) -> dict[str, GenerationRole]:
        """Every generation there is, the serving one first, then a building one."""

    async def describe(self, name: str) -> Collection | None:
        """What a generation says about itself; None if it does not."""

    async def create_first(self, embedder: EmbedderIdentity) -> str:
        """The first generation, serving from now on; the one somebody else made meanwhile, whosever it is."""

    async def create(self, embedder: EmbedderIdentity) -> str:
        """An empty generation beside the others, building from now on."""

    async def switch(self) -> None:
        """The building generation serves from now on and the serving one is retired, in one step."""

    async def drop(self, name: str) -> None:
        """Remove a generation and all its points. It must not be serving."""

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Followed:
    """A generation that changes are followed into."""

    name: str
    index: RecordIndex
    embedder: Embedder | None
    """None: its embedder is not at hand. What changes is removed from it, and nothing is written."""


class LiveIndex(ReadBack):
    """A :class:`~retold.index.port.RecordIndex` that answers from this worker's generation and erases in all of them.

    Args:
        home: where the generations are.
        embedders: the ones this worker has, the configured one first. One of them must be the serving generation's.
    """

    def __init__(self, home: IndexHome, embedders: Sequence[Embedder]) -> None:
        self._home = home
        self._embedders = list(embedders)
        self._open: dict[str, Followed] = {}
        self._bound: Followed | None = None
        self._changing = asyncio.Lock()
        self._retired_since: dict[str, datetime] = {}

    @property
    def exclusive(self) -> bool:
        return self._home.exclusive

    @property
    def generation(self) -> str:
        """The name of the generation this worker answers from."""
        return self._mine.name

    @property
    def embedder(self) -> Embedder:
        """The embedder of the generation this worker answers from."""
        assert self._mine.embedder is not None
        return self._mine.embedder

    async def open(self) -> None:
        """Bind to the generation that serves now; the first one is made here.

        Raises:
            EmbedderMismatchError: none of this worker's embedders is the serving generation's.
        """
        roles = await self._home.roles()
        name = next((name for name, role in roles.items() if role is GenerationRole.SERVING), None)
        if name is None:
            name = await self._home.create_first(self._embedders[0].identity)
        followed = await self._followed(name)
        if followed.embedder is None:
            stored = await self._home.describe(name)
            raise EmbedderMismatchError(stored.embedder if stored else None, self._embedders[0].identity, name)
        self._bound = followed

    @property
    def answering(self) -> Followed:
        """The generation this worker answers from."""
        return self._mine

    # --- what follows the store ----------------------------------------------------------------------------------

    async def followed(self) -> Sequence[Followed]:
        """Every generation a change must reach. Ask again for each batch, after reading what is pending.

        In that order a generation that is made meanwhile misses nothing: what was pending before it was made is in
        the store by then, and building reads the store.

        Raises:
            NotFollowedError: the embedder of one that serves or is built is not at hand.
        """
        async with self._changing:
            roles = await self._home.roles()
            await self._let_go_of_all_but({*roles, self.generation})
            followed = [self._mine]
            for name, role in roles.items():
                if name == self.generation:
                    continue
                if role is GenerationRole.RETIRED:
                    followed += await self._retired(name)
                    continue
                each = await self._followed(name)
                if each.embedder is None:
                    raise NotFollowedError(
                        f"index {name} is {role.value}, and its embedder is not configured here: give every worker "
                        "RETOLD_NEXT_EMBEDDER__... until the old index is dropped"
                    )
                followed.append(each)
            return followed

    async def _retired(self, name: str) -> list[Followed]:
        """Followed as far as possible: whoever still answers from it checks every record with the store anyway."""
        try:
            return [await self._followed(name)]
        except (IndexUnavailableError, EmbedderMismatchError) as error:
            logger.warning("retired index %s is not followed: %s", name, error)
            return []

    async def _followed(self, name: str) -> Followed:
        if name not in self._open:
            collection = await self._home.describe(name)
            if collection is None:
                raise EmbedderMismatchError(None, self._embedders[0].identity, name)
            index = self._home.index(name)
            try:
                await index.ensure(collection.embedder)
            except BaseException:
                await index.aclose()
                raise
            embedder = next((each for each in self._embedders if each.identity == collection.embedder), None)
            self._open[name] = Followed(name, index, embedder)
        return self._open[name]

    # --- building anew -------------------------------------------------------------------------------------------

    async def generations(self) -> Sequence[Generation]:
        """Every generation there is, the serving one first."""
        found = []
        for name, role in (await self._home.roles()).items():
            collection = await self._home.describe(name)
            embedder = "unknown" if collection is None else spelled(collection.embedder)
            found.append(Generation(name=name, role=role, embedder=embedder))
        return found

    async def begin_rebuild(self, *, same_embedder: bool = False) -> Generation:
        """The generation that is built for the next embedder, made if there is none.

        The next embedder is the last of this worker's. A generation that was begun for another one is dropped.

        Raises:
            RebuildRefusedError: there is no next embedder, and it was not asked for the same.
        """
        wanted = (self.embedder if same_embedder else self._embedders[-1]).identity
        if wanted == self.embedder.identity and not same_embedder:
            raise RebuildRefusedError(
                f"the index already belongs to {spelled(wanted)}, and the worker knows no other: set "
                "RETOLD_NEXT_EMBEDDER__... on every worker and restart them, or ask for --same-embedder"
            )
        async with self._changing:
            name = await self._building()
            stored = None if name is None else await self._home.describe(name)
            if name is not None and (stored is None or stored.embedder != wanted):
                await self._drop(name)
                name = None
            if name is None:
                name = await self._home.create(wanted)
            return Generation(name=name, role=GenerationRole.BUILDING, embedder=spelled(wanted))

    async def building(self, name: str) -> Followed:
        """The generation that is built.

        Raises:
            RebuildRefusedError: it is not being built any more.
            NotFollowedError: its embedder is not configured here.
        """
        async with self._changing:
            if await self._building() != name:
                raise RebuildRefusedError(f"index {name} is not being built any more")
            followed = await self._followed(name)
        if followed.embedder is None:
            raise NotFollowedError(f"index {name} is built with an embedder that is not configured here")
        return followed

    async def switch(self, name: str) -> None:
        """Have workers that start from now on answer from this generation. Again: no change.

        Raises:
            RebuildRefusedError: it is neither building nor serving.
        """
        async with self._changing:
            role = (await self._home.roles()).get(name)
            if role is GenerationRole.BUILDING:
                await self._home.switch()
            elif role is not GenerationRole.SERVING:
                raise RebuildRefusedError(f"index {name} is not being built any more")

    async def abandon(self) -> str | None:
        """Drop what is being built; its name, or None if there is nothing."""
        async with self._changing:
            if (name := await self._building()) is not None:
                await self._drop(name)
            return name

    async def drop_retired(self, read: AnyOf[str], at: datetime, unread_for: timedelta) -> list[str]:
        """Drop retired generations that this process has seen unread for so long; their names.

        Args:
            read: the generations other workers answer from.
            unread_for: on a server, longer than it takes to make a generation and say that it is building.
        """
        async with self._changing:
            roles = await self._home.roles()
            unread = {
                name
                for name, role in roles.items()
                if role is GenerationRole.RETIRED and name != self.generation and name not in read
            }
            self._retired_since = {name: self._retired_since.get(name, at) for name in unread}
            due = sorted(name for name, since in self._retired_since.items() if at - since >= unread_for)
            for name in due:
                await self._drop(name)
            return due

    async def _building(self) -> str | None:
        roles = await self._home.roles()
        return next((name for name, role in roles.items() if role is GenerationRole.BUILDING), None)

    async def _drop(self, name: str) -> None:
        await self._let_go_of_all_but(self._open.keys() - {name})
        await self._home.drop(name)
        logger.warning("dropped index %s", name)

    async def _let_go_of_all_but(self, names: AnyOf[str]) -> None:
        for gone in [name for name in self._open if name not in names]:
            await self._open.pop(gone).index.aclose()

    # --- RecordIndex ---------------------------------------------------------------------------------------------

    @property
    def _mine(self) -> Followed:
        if self._bound is None:
            raise IndexUnavailableError("the index is not open: call open() first")
        return self._bound

    async def ensure(self, embedder: EmbedderIdentity) -> None:
        await self._mine.index.ensure(embedder)

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        await self._mine.index.upsert(points)

    async def search(self, queries: Sequence[IndexQuery]) -> list[list[Hit]]:
        return await self._mine.index.search(queries)

    async def count(self, principal: Principal | None = None) -> int:
        return await self._mine.index.count(principal)

    async def fetch(self, ids: Sequence[RecordId]) -> dict[RecordId, StoredPoint]:
        return await self._mine.index.fetch(ids)

    async def inspect(self, ids: Sequence[RecordId]) -> dict[RecordId, ScannedPoint]:
        return await self._mine.index.inspect(ids)

    async def scan(self, after: str | None = None, principal: Principal | None = None) -> ScanPage:
        return await self._mine.index.scan(after, principal)

    async def points_of(self, principal: Principal) -> list[StoredPoint]:
        """Of all generations: what is left in a retired one is left."""
        return [point for index in await self._all() for point in await index.points_of(principal)]

    async def find_texts(self, principal: Principal, texts: Sequence[str]) -> dict[str, list[RecordId]]:
        """In all generations."""
        found: dict[str, list[RecordId]] = {}
        for index in await self._all():
            for text, ids in (await index.find_texts(principal, texts)).items():
                found[text] = list(dict.fromkeys([*found.get(text, []), *ids]))
        return found

    async def delete(self, ids: Sequence[RecordId]) -> None:
        for index in await self._all():
            await index.delete(ids)

    async def delete_points(self, keys: Sequence[str]) -> None:
        for index in await self._all():
            await index.delete_points(keys)

    async def delete_principal(self, principal: Principal) -> None:
        for index in await self._all():
            await index.delete_principal(principal)

    async def healthy(self) -> bool:
        return self._bound is not None and await self._bound.index.healthy()

    async def aclose(self) -> None:
        await self._let_go_of_all_but(())
        await self._home.aclose()

    async def _all(self) -> list[RecordIndex]:
        """Every generation, whosever embedder it is: erasing needs none. One that cannot be opened is an error."""
        async with self._changing:
            names = dict.fromkeys([self.generation, *await self._home.roles()])
            return [(await self._followed(name)).index for name in names]
