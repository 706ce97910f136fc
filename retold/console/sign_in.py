"""Who looks at the page: signing in with a token, staying signed in, and what a form must carry to be believed.

The cookie holds a random value. The store keeps its hash and whose it is; the CSRF token is derived from it, so that
it is the session's own and kept nowhere. The token itself, which signs decisions, stays in this process's memory for
as long as the session: never in the store, a cookie or a log. So after a restart of the console, or when another of
several consoles answers, the session still shows everything, and the first decision asks for the token once more.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from retold.console.attempts import Attempts
from retold.console.desk import Desk, Sessions
from retold.console.rendering import Rendering
from retold.contracts.review import Reviewer, ReviewerRole
from retold.credentials import ReviewerCredential
from retold.settings import ConsoleSettings

ANSWERED_AFTER_S = 0.25
"""Every answer to a sign-in takes this long at least: how long the store took says nothing about the token."""
KEYS_HELD = 1_000
_SECRET_BYTES = 32
_CSRF = b"retold console form"
_PAGES = ("/queue", "/reviews/", "/history", "/help")

Pause = Callable[[float], Awaitable[object]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SignedIn:
    """A reviewer with an open session."""

    reviewer: Reviewer
    secret: str
    """The cookie's value."""

    @property
    def session_hash(self) -> str:
        return hash_of(self.secret)

    @property
    def csrf(self) -> str:
        return hmac.new(self.secret.encode(), _CSRF, hashlib.sha256).hexdigest()

    @property
    def may_decide(self) -> bool:
        return self.reviewer.role is ReviewerRole.REVIEWER

    def sees(self, tenant: str) -> bool:
        return self.reviewer.tenants is None or tenant in self.reviewer.tenants


def hash_of(secret: str) -> str:
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


class HeldCredentials:
    """What signs for open sessions, in this process only. Bounded: the session used least recently loses its own."""

    def __init__(self, *, most: int = KEYS_HELD) -> None:
        self._most = most
        self._held: OrderedDict[str, ReviewerCredential] = OrderedDict()

    def hold(self, session_hash: str, credential: ReviewerCredential) -> None:
        self._held[session_hash] = credential
        self._held.move_to_end(session_hash)
        while len(self._held) > self._most:
            self._held.popitem(last=False)

    def of(self, session_hash: str) -> ReviewerCredential | None:
        if session_hash in self._held:
            self._held.move_to_end(session_hash)
        return self._held.get(session_hash)

    def let_go(self, session_hash: str) -> None:
        self._held.pop(session_hash, None)


class Door:
    """Signs people in and out, and says who somebody is.

    Args:
        now: the time, aware.
        pause: how a sign-in waits until it is answered.
    """

    def __init__(
        self,
        desk: Desk,
        sessions: Sessions,
        rendering: Rendering,
        settings: ConsoleSettings,
        *,
        now: Callable[[], datetime],
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._desk = desk
        self._sessions = sessions
        self._rendering = rendering
        self._settings = settings
        self._now = now
        self._pause = pause
        self._attempts = Attempts()
        self.credentials = HeldCredentials()

    @property
    def cookie(self) -> str:
        """`__Host-` makes a browser refuse it without Secure, with a Domain, or from another host."""
        return "__Host-retold" if self._settings.secure else "retold"

    async def who(self, request: Request) -> SignedIn | None:
        """The reviewer whose session this is, as they are now; None: not signed in (any more)."""
        secret = request.cookies.get(self.cookie, "")
        if not 0 < len(secret) <= 2 * _SECRET_BYTES:
            return None
        idle = timedelta(minutes=self._settings.idle_minutes)
        reviewer = await self._sessions.whose(hash_of(secret), self._now(), idle=idle)
        if reviewer is None:
            self.credentials.let_go(hash_of(secret))
            return None
        return SignedIn(reviewer, secret)

    def turned_away(self, request: Request) -> Response:
        """To the sign-in page, and back afterwards.

        A link from another site comes without our cookie (SameSite=Strict). Such a visitor may well be signed in:
        the same address asked for by a page of ours brings the cookie along, so that is tried first.
        """
        if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
            return self._rendering.page("arriving.html", None)
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/sign-in?next={quote(_ours(target), safe='')}", 303)

    async def sign_in_page(self, request: Request) -> Response:
        if await self.who(request) is not None:
            return RedirectResponse(_ours(request.query_params.get("next", "")), 303)
        return self._sign_in(request.query_params.get("next", ""))

    async def sign_in(self, request: Request) -> Response:
        form = await form_of(request)
        wanted = form.get("next", "")
        began = time.monotonic()
        proven = None
        if allowed := self.may_try(request):
            proven = await self.proven(form.get("token", ""))
        await self.settle(began)
        if not allowed:
            _log.warning("sign-in refused: too many attempts")
            wait = "Too many attempts. Wait a minute, then try again."
            return self._sign_in(wanted, wait, 429, {"Retry-After": "60"})
        if proven is None:
            _log.warning("sign-in refused")
            return self._sign_in(wanted, "This token is not known here. Check that all of it was copied.", 401)
        return await self._welcome(*proven, wanted)

    async def sign_out(self, request: Request) -> Response:
        person = await self.who(request)
        if person is not None:
            believe(person, await form_of(request))
            self.credentials.let_go(person.session_hash)
            await self._sessions.end(person.session_hash)
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(self.cookie, path="/", secure=self._settings.secure, httponly=True, samesite="strict")
        return answer

    def may_try(self, request: Request) -> bool:
        """Count an attempt to prove oneself by a token, from wherever the request comes."""
        return self._attempts.may_try(request.client.host if request.client else "", time.monotonic())

    async def proven(self, token: str) -> tuple[Reviewer, ReviewerCredential] | None:
        """Whose token it is, and the token. Unknown, disabled and nonsense are one answer."""
        reviewer = await self._desk.authenticate(token)
        return None if reviewer is None else (reviewer, ReviewerCredential.of(token))

    async def settle(self, began: float) -> None:
        """Let the answer take as long as every other."""
        await self._pause(max(0.0, began + ANSWERED_AFTER_S - time.monotonic()))

    async def _welcome(self, reviewer: Reviewer, credential: ReviewerCredential, wanted: str) -> Response:
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        lifetime = timedelta(minutes=self._settings.session_minutes)
        now = self._now()
        await self._sessions.begin(hash_of(secret), reviewer.reviewer_id, now, expires_at=now + lifetime)
        self.credentials.hold(hash_of(secret), credential)
        answer = RedirectResponse(_ours(wanted), 303)
        answer.set_cookie(
            self.cookie,
            secret,
            max_age=int(lifetime.total_seconds()),
            path="/",
            secure=self._settings.secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    def _sign_in(
        self, wanted: str, problem: str = "", status: int = 200, headers: dict[str, str] | None = None
    ) -> Response:
        return self._rendering.page(
            "sign_in.html", None, status=status, headers=headers, next=_ours(wanted), problem=problem
        )


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form, each once, texts only.

    Raises:
        HTTPException: 415 for another kind of body, 400 for one that is no form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Send a form.")
    fields = await request.form(max_fields=16)
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def believe(person: SignedIn, form: dict[str, str]) -> None:
    """The form was filled in on a page of this session.

    Raises:
        HTTPException: 403, it was not.
    """
    if not hmac.compare_digest(form.get("csrf", "").encode(), person.csrf.encode()):
        raise HTTPException(403, "This form belongs to another session. Load the page again, then repeat what you did.")


def _ours(target: str) -> str:
    """The page to go to, if it is one of ours, else the queue. Path and query alone: never another site."""
    parts = urlsplit(target) if "\\" not in target and target.isprintable() else None
    if parts is None or not parts.path.startswith(_PAGES):
        return "/queue"
    return parts.path + (f"?{parts.query}" if parts.query else "")
