"""What a collection says about itself: whose vectors it holds, and which payload keys its points carry.

Both are stored with the collection. Vectors of two embedders cannot be compared, and a filter over a key that older
points lack would quietly find nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from retold.contracts._base import Contract
from retold.index.points import NEVER_SUSPENDED
from retold.index.port import EmbedderMismatchError, IndexUnavailableError
from retold.policy.ports import EmbedderIdentity

SCHEMA = 2
"""Raised with every key that points get and filters ask for. 1: the first release. 2: when a record is suspended."""

MISSING_IN_SCHEMA_1: Mapping[str, str] = NEVER_SUSPENDED
"""What points of schema 1 lack. Nothing was ever suspended when they were written, so this is true of all of them."""


class Collection(Contract):
    """A collection's description. Later releases may say more in it than this one reads."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    embedder: EmbedderIdentity
    schema_version: Annotated[int, Field(ge=1)] = 1


def described(embedder: EmbedderIdentity) -> Collection:
    """A collection that is made now."""
    return Collection(embedder=embedder, schema_version=SCHEMA)


def read_description(stored: object) -> Collection | None:
    """What is stored with a collection; None if that names no embedder. The first release kept the embedder alone."""
    if isinstance(stored, Mapping) and "embedder" not in stored:
        stored = {"embedder": stored}
    try:
        return Collection.model_validate(stored)
    except ValidationError:
        return None


def expect(stored: Collection | None, embedder: EmbedderIdentity, where: str) -> Collection:
    """The collection, if this release and this embedder can use it.

    Raises:
        EmbedderMismatchError: it holds another embedder's vectors.
        IndexUnavailableError: a later release made it.
    """
    if stored is None or stored.embedder != embedder:
        raise EmbedderMismatchError(stored.embedder if stored else None, embedder, where)
    if stored.schema_version > SCHEMA:
        raise IndexUnavailableError(
            f"{where} has points of schema {stored.schema_version}, this release knows {SCHEMA}: "
            "run the release that made it, or rebuild the index from the store"
        )
    return stored
