"""Generations of the index on a Qdrant server: collections, and two aliases that say which serves and which is built.

Nothing is asked through the aliases: a worker that went on asking `NAME-serving` with its own embedder after a switch
would compare vectors of two embedders. They are the pointer, moved by the server in one step.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from qdrant_client import AsyncQdrantClient, models

from retold.contracts.indexing import GenerationRole
from retold.index.collection import Collection, read_description
from retold.index.port import IndexUnavailableError
from retold.index.server import ServerIndex
from retold.index.server_errors import CLIENT_ERRORS, typed
from retold.policy.ports import EmbedderIdentity

T = TypeVar("T")


class ServerHome:
    """An :class:`~retold.index.generations.IndexHome` on a server that several workers reach.

    The first generation is the collection itself, as the first release made it; later ones are `NAME-g` and more.

    Args:
        url, api_key, timeout_s: as for :class:`~retold.index.server.ServerIndex`.
        collection: of the first generation.
    """

    exclusive = False

    def __init__(self, url: str, collection: str, *, api_key: str | None = None, timeout_s: int = 5) -> None:
        self._url, self._api_key, self._timeout_s = url, api_key, timeout_s
        self._base = collection
        self._serving, self._building = f"{collection}-serving", f"{collection}-building"
        self._generation = re.compile(rf"{re.escape(collection)}(?:-g[0-9a-f]{{8}})?")
        self._client = AsyncQdrantClient(url=url, api_key=api_key, timeout=timeout_s, check_compatibility=False)

    def index(self, name: str) -> ServerIndex:
        return ServerIndex(self._url, name, api_key=self._api_key, timeout_s=self._timeout_s)

    async def roles(self) -> dict[str, GenerationRole]:
        aliases = await self._aliases()
        if self._serving not in aliases:
            return {}
        roles = {aliases[self._serving]: GenerationRole.SERVING}
        if self._building in aliases:
            roles[aliases[self._building]] = GenerationRole.BUILDING
        retired = [name for name in await self._names() if name not in roles]
        return {**roles, **dict.fromkeys(retired, GenerationRole.RETIRED)}

    async def describe(self, name: str) -> Collection | None:
        try:
            info = await self._ask(lambda: self._client.get_collection(name))
        except IndexUnavailableError:
            if name in await self._names():
                raise
            return None  # another worker dropped it after it was listed
        return read_description(info.config.metadata or {})

    async def create_first(self, embedder: EmbedderIdentity) -> str:
        # What is there without an alias was made by the first release, or by a start that died before the last line.
        if self._base not in await self._names():
            await self._make(self._base, embedder)
        if self._serving not in (aliases := await self._aliases()):
            await self._change(_create(self._serving, self._base))
            return self._base
        return aliases[self._serving]

    async def create(self, embedder: EmbedderIdentity) -> str:
        # Never a name that was there before: another worker may still hold what it meant.
        name = f"{self._base}-g{uuid.uuid4().hex[:8]}"
        await self._make(name, embedder)
        await self._change(_create(self._building, name))
        return name

    async def switch(self) -> None:
        building = (await self._aliases()).get(self._building)
        if building is None:
            raise IndexUnavailableError("no index is being built")
        await self._change(_delete(self._building), _delete(self._serving), _create(self._serving, building))

    async def drop(self, name: str) -> None:
        aliases = await self._aliases()
        if aliases.get(self._serving) == name:
            raise ValueError(f"index {name} is serving and cannot be dropped")
        if aliases.get(self._building) == name:
            await self._change(_delete(self._building))
        await self._ask(lambda: self._client.delete_collection(name))

    async def aclose(self) -> None:
        await self._client.close()

    async def _make(self, name: str, embedder: EmbedderIdentity) -> None:
        made = self.index(name)
        try:
            await made.ensure(embedder)
        finally:
            await made.aclose()

    async def _aliases(self) -> dict[str, str]:
        found = await self._ask(self._client.get_aliases)
        return {each.alias_name: each.collection_name for each in found.aliases}

    async def _names(self) -> list[str]:
        found = await self._ask(self._client.get_collections)
        return sorted(each.name for each in found.collections if self._generation.fullmatch(each.name))

    async def _change(self, *changes: models.CreateAliasOperation | models.DeleteAliasOperation) -> None:
        await self._ask(lambda: self._client.update_collection_aliases(_all(changes)))

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except CLIENT_ERRORS as error:
            raise typed(error) from error


def _all(changes: Sequence[models.AliasOperations]) -> list[models.AliasOperations]:
    return list(changes)


def _create(alias: str, collection: str) -> models.CreateAliasOperation:
    return models.CreateAliasOperation(
        create_alias=models.CreateAlias(collection_name=collection, alias_name=alias)
    )  # fmt: skip


def _delete(alias: str) -> models.DeleteAliasOperation:
    return models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))
