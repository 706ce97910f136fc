"""Generations of the embedded index: folders side by side, and a small file that says which of them serves."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from pathlib import Path

from retold.contracts._base import Contract
from retold.contracts.indexing import GenerationRole
from retold.index.collection import Collection
from retold.index.edge import EdgeIndex, read_folder
from retold.index.port import IndexUnavailableError
from retold.policy.ports import EmbedderIdentity


class _Pointer(Contract):
    serving: str
    building: str | None = None


class EdgeHome:
    """An :class:`~retold.index.generations.IndexHome` in one directory. The engine locks its folders for one process.

    The first generation is the folder itself, as the first release made it; later ones are `FOLDER-g` and more.

    Args:
        folder: of the first generation.
    """

    exclusive = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pointer = folder.with_name(f"{folder.name}.generations.json")
        self._generation = re.compile(rf"{re.escape(folder.name)}(?:-g[0-9a-f]{{8}})?")

    def index(self, name: str) -> EdgeIndex:
        return EdgeIndex(self._path(name))

    async def roles(self) -> dict[str, GenerationRole]:
        pointer = self._read()
        if pointer is None or pointer.serving not in (names := self._names()):
            return {}  # somebody removed the folder: the next first generation is filled from the store
        roles = {pointer.serving: GenerationRole.SERVING}
        if pointer.building in names:
            roles[pointer.building] = GenerationRole.BUILDING
        return {**roles, **dict.fromkeys(names - roles.keys(), GenerationRole.RETIRED)}

    async def describe(self, name: str) -> Collection | None:
        return read_folder(self._path(name))

    async def create_first(self, embedder: EmbedderIdentity) -> str:
        # What is there without a pointer was made by the first release, or by a start that died before the next line.
        await self._make(self._folder.name, embedder)
        self._point(_Pointer(serving=self._folder.name))
        return self._folder.name

    async def create(self, embedder: EmbedderIdentity) -> str:
        pointer = self._expect()
        # Never a name that was there before: another worker may still hold what it meant.
        name = f"{self._folder.name}-g{uuid.uuid4().hex[:8]}"
        await self._make(name, embedder)
        self._point(pointer.model_copy(update={"building": name}))
        return name

    async def switch(self) -> None:
        building = self._expect().building
        if building is None:
            raise IndexUnavailableError("no index is being built")
        self._point(_Pointer(serving=building))

    async def drop(self, name: str) -> None:
        pointer = self._expect()
        if name == pointer.serving:
            raise ValueError(f"index {name} is serving and cannot be dropped")
        if name == pointer.building:
            self._point(pointer.model_copy(update={"building": None}))
        # Renamed first: a death in the middle leaves nothing that could be taken for an index.
        going = self._path(name).with_name(f"{name}.dropped")
        shutil.rmtree(going, ignore_errors=True)
        if self._path(name).exists():
            self._path(name).rename(going)
            shutil.rmtree(going)

    async def aclose(self) -> None:
        """Nothing is held open."""

    async def _make(self, name: str, embedder: EmbedderIdentity) -> None:
        """Under another name until it is whole: a death in between leaves nothing that could be taken for an index."""
        if self._path(name).exists():
            return
        for left in self._folder.parent.glob(f"{self._folder.name}*.making"):
            shutil.rmtree(left)
        making = self._path(name).with_name(f"{name}.making")
        made = EdgeIndex(making)
        try:
            await made.ensure(embedder)
        finally:
            await made.aclose()
        making.rename(self._path(name))

    def _path(self, name: str) -> Path:
        return self._folder.with_name(name)

    def _names(self) -> set[str]:
        found = {each.name for each in self._folder.parent.iterdir() if each.is_dir()}
        return {name for name in found if self._generation.fullmatch(name)}

    def _expect(self) -> _Pointer:
        if (pointer := self._read()) is None:
            raise IndexUnavailableError(f"{self._pointer} does not say which index serves")
        return pointer

    def _read(self) -> _Pointer | None:
        try:
            return _Pointer.model_validate_json(self._pointer.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise IndexUnavailableError(
                f"{self._pointer} cannot be read: write the name of the folder to serve from into it, "
                '{"serving": "index"}, or delete it together with the index folders to build them anew'
            ) from error

    def _point(self, pointer: _Pointer) -> None:
        """Durable, and whole at any moment: the folders are named by it or by what it was before."""
        draft = self._pointer.with_suffix(".tmp")
        with draft.open("wb") as file:
            file.write(pointer.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._pointer)
        directory = os.open(self._pointer.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
