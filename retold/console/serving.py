"""The page over the real store and Temporal, behind uvicorn, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import uvicorn
from starlette.types import ASGIApp

from retold.contracts.record import RecordId
from retold.contracts.review import (
    BacklogState,
    ReviewDecision,
    Reviewer,
    ReviewFilter,
    ReviewItem,
    ReviewOutcome,
    ReviewPage,
    ReviewStats,
    ReviewStatus,
    UnreadableReview,
)
from retold.policy.profile import ProfileAssembler
from retold.settings import ConsoleSettings
from retold.store.store import Store

CONNECTIONS = 256
STOPS_WITHIN_S = 10

Send = Callable[[ReviewDecision], Awaitable[ReviewOutcome]]
"""Sends a signed decision; raises as `Desk.decide` does."""


class StoreDesk:
    """`Desk` over the store, which it only reads; decisions go where `send` takes them.

    Args:
        profiles: builds the profiles an item is shown with, as a session's is built.
        send: takes a decision to its item's workflow.
        bound: most items open at once.
        owner: who answers for the backlog.
    """

    def __init__(self, store: Store, profiles: ProfileAssembler, send: Send, *, bound: int, owner: str) -> None:
        self._store = store
        self._profiles = profiles
        self._send = send
        self._bound = bound
        self._owner = owner

    async def ping(self) -> None:
        await self._store.ping()

    async def authenticate(self, token: str) -> Reviewer | None:
        return await self._store.reviewers.authenticate(token)

    async def page(self, wanted: ReviewFilter, cursor: str | None = None) -> ReviewPage:
        return await self._store.reviews.page(wanted, cursor)

    async def rules(self, ids: Sequence[RecordId]) -> Mapping[RecordId, str]:
        found = await self._store.records_by_id(ids)
        return {id: record.text for id, record in found.items() if record.text}

    async def item(self, review_id: str, now: datetime) -> ReviewItem | UnreadableReview | None:
        return await self._store.reviews.item(review_id, now, assemble=self._profiles.assemble)

    async def backlog(self, tenants: Sequence[str] | None) -> BacklogState:
        return await self._store.reviews.backlog(bound=self._bound, owner=self._owner, tenants=tenants)

    async def stats(self, since: datetime, tenants: Sequence[str] | None) -> ReviewStats:
        return await self._store.reviews.stats(since, bound=self._bound, owner=self._owner, tenants=tenants)

    async def decide(self, decision: ReviewDecision) -> ReviewStatus:
        return (await self._send(decision)).status


class PortTakenError(OSError):
    """Somebody else listens there."""


def listen(settings: ConsoleSettings) -> socket.socket:
    """The socket of the page.

    Raises:
        PortTakenError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise PortTakenError(f"{settings.host}:{settings.port} cannot be used ({why}); name another port") from error


def address(settings: ConsoleSettings, listening: socket.socket) -> str:
    """Where a browser finds the page."""
    port = listening.getsockname()[1]
    host = settings.host if settings.is_loopback and not settings.behind_tls else settings.allowed_hosts[0]
    if settings.behind_tls:
        return f"https://{host}/"
    return f"{'https' if settings.secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/"


async def serve(application: ASGIApp, settings: ConsoleSettings, listening: socket.socket) -> None:
    """Answer requests until cancelled; then finish those in hand, within 10 s."""
    server = _Server(
        uvicorn.Config(
            application,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            # An address holds what was filtered by: tenants and, after a decision, item ids.
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.certificate_key,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=STOPS_WITHIN_S,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving


class _Server(uvicorn.Server):
    """Leaves signals to the command that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
