"""What holds for every request and every answer of the page, whichever page it is.

Each class is one rule around the application; `app` says in which order. How large a body
may be is Starlette's own middleware.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Collection, Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_MAX_BYTES = 16_384
"""The largest form there is: a reason of 500 characters, percent-encoded, and a few names."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)

_ALWAYS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not `no-referrer`: a browser would then send `Origin: null` with our own forms, and they would be refused.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_TRANSPORT = "max-age=31536000"
_READS = ("GET", "HEAD")

_log = logging.getLogger(__name__)


class AnswerHeaders:
    """Every answer, refusals and failures included, says what a browser may do with it."""

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        self._headers = {**_ALWAYS, **({"Strict-Transport-Security": _TRANSPORT} if secure else {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class OwnHosts:
    """Only the page's own names are answered, so that no other site can have its name lead here.

    Probes ask for the pod by its address; what they ask for says nothing, and any name may ask it.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], open_paths: Collection[str]) -> None:
        names = [f"[{host}]" if ":" in host else host for host in hosts]
        self._any = app
        self._own = TrustedHostMiddleware(app, allowed_hosts=names, www_redirect=False)
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._any if scope["path"] in self._open_paths else self._own
        await asked(scope, receive, send)


class QuietFailures:
    """A mistake of ours is answered with 500 and logged as where it happened, never with the values it happened to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        unsent: Exception | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal started, unsent
            started = started or message["type"] == "http.response.start"
            try:
                await send(message)
            except Exception as error:
                unsent = error
                raise

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            if error is unsent:  # whoever sends had answered already, or has nobody to send to: no mistake of ours
                raise
            _log.error("%s at %s", type(error).__name__, _where(error))
            if not started:
                await PlainTextResponse("The console made a mistake; its log says where.", 500)(scope, receive, send)


class SameOrigin:
    """What changes anything comes from a page of ours: the browser says so, and is not asked twice.

    A request that says neither where it comes from nor how it relates to us is refused: every browser says one.

    Args:
        scheme: `https`, or `http` on loopback: a proxy that ends TLS hides the one the browser used.
    """

    def __init__(self, app: ASGIApp, *, scheme: str) -> None:
        self._app = app
        self._scheme = scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _READS and not self._ours(Headers(scope=scope)):
            refusal = PlainTextResponse("This request does not come from a page of this console.", 403)
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _ours(self, headers: Headers) -> bool:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return False
        return (origin is None or origin == f"{self._scheme}://{headers.get('host')}") and site in (None, "same-origin")


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " < ".join(
        f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in reversed(frames)
    )
