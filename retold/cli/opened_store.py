"""The store of this machine's settings, for commands that read it themselves: texts have no place in a history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from retold.cli.failures import CommandError
from retold.settings import Settings

if TYPE_CHECKING:
    from retold.policy.profile import ProfileAssembler
    from retold.store.store import Store


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[tuple[Store, ProfileAssembler]]:
    """The store as it is, and what assembles profiles from it.

    Raises:
        CommandError: it does not answer, or no worker of this version has prepared it.
    """
    # Here and not above: importing the store takes a second, and most commands need none of it.
    from retold.composition import compose_console
    from retold.store.store import StoreUnavailableError

    async with compose_console(settings) as (store, profiles):
        try:
            await store.ping()
        except StoreUnavailableError as error:
            raise CommandError(
                f"the store does not answer ({error})",
                "check RETOLD_STORE_URL or RETOLD_DATA_DIR; a worker of this version, or `retold dev`, prepares it",
            ) from error
        yield store, profiles
