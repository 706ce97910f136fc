"""The page as one ASGI application: which address is which page, and the rules around all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from retold.client.encryption import EncryptingCodec
from retold.console.codec import CodecEndpoint
from retold.console.desk import Desk, Sessions
from retold.console.pages import Pages
from retold.console.rendering import STATIC, Rendering
from retold.console.security import BODY_MAX_BYTES, AnswerHeaders, OwnHosts, QuietFailures, SameOrigin
from retold.console.sign_in import Door, Pause
from retold.settings import ConsoleSettings
from retold.store.engine import StoreUnavailableError

HEALTH, READINESS = "/healthz", "/readyz"

_log = logging.getLogger(__name__)

_TITLES = {400: "This cannot be read", 403: "Not allowed", 404: "Not here", 405: "Not like this", 413: "Too large"}


def utc_now() -> datetime:
    return datetime.now(UTC)


def console_app(
    desk: Desk,
    sessions: Sessions,
    settings: ConsoleSettings,
    *,
    now: Callable[[], datetime] = utc_now,
    pause: Pause = asyncio.sleep,
    codec: EncryptingCodec | None = None,
) -> ASGIApp:
    """The reviewers' page over a desk. Nothing is connected or started here.

    Args:
        now: the time, aware.
        pause: how a sign-in waits until it is answered.
        codec: decrypts what Temporal's page shows, for pages of `settings.codec_origins`; None: nothing is encrypted.
    """
    rendering = Rendering(now)
    door = Door(desk, sessions, rendering, settings, now=now, pause=pause)
    pages = Pages(desk, door, rendering, now=now)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = _TITLES.get(error.status_code, "This did not work")
        return rendering.page(
            "message.html", None, status=error.status_code, headers=error.headers, title=title, text=error.detail
        )

    async def store_is_away(request: Request, error: Exception) -> Response:
        _log.error("the store does not answer")
        text = "The store does not answer, so there is nothing to show. Nothing was decided; try again in a moment."
        return rendering.page("message.html", None, status=503, title="The store is away", text=text)

    async def beginning(request: Request) -> Response:
        return RedirectResponse("/queue", 303)

    application = Starlette(
        routes=[
            Route("/", beginning),
            Route("/sign-in", door.sign_in_page, methods=["GET"]),
            Route("/sign-in", door.sign_in, methods=["POST"]),
            Route("/sign-out", door.sign_out, methods=["POST"]),
            Route("/queue", pages.signed_in(Pages.queue), methods=["GET"]),
            Route("/reviews/{review_id}", pages.signed_in(Pages.item), methods=["GET"]),
            Route("/reviews/{review_id}", pages.signed_in(Pages.decide), methods=["POST"]),
            Route("/history", pages.signed_in(Pages.history), methods=["GET"]),
            Route("/help", pages.signed_in(Pages.help), methods=["GET"]),
            Route(HEALTH, pages.health, methods=["GET"]),
            Route(READINESS, pages.readiness, methods=["GET"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[
            Middleware(QuietFailures),
            Middleware(OwnHosts, hosts=settings.allowed_hosts, open_paths={HEALTH, READINESS}),
            Middleware(SameOrigin, scheme="https" if settings.secure else "http"),
        ],
        exception_handlers={HTTPException: refused, StoreUnavailableError: store_is_away},
        max_body_size=BODY_MAX_BYTES,
    )
    outermost: ASGIApp = AnswerHeaders(application, secure=settings.secure)
    if codec is not None and settings.codec_origins:
        # In front of the rules for pages of our own: this one address is for pages of another origin, by name.
        return CodecEndpoint(outermost, codec, door, origins=settings.codec_origins)
    return outermost
