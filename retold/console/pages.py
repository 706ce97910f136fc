"""What a reviewer sees and does: the queue, one item, deciding about it, what was decided."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from retold.console import untrusted, wording
from retold.console.asked import Age, Asked, UnknownFilterError
from retold.console.desk import DecisionNotSentError, DecisionRefusedError, DecisionUnknownError, Desk
from retold.console.rendering import Rendering
from retold.console.sign_in import Door, SignedIn, believe, form_of
from retold.contracts.activation import PROMOTABLE_CATEGORIES, ActivationCategory
from retold.contracts.record import RecordId
from retold.contracts.review import (
    REVIEW_REASON_MAX_CHARS,
    RefusedDecision,
    Resolution,
    Review,
    ReviewFilter,
    ReviewItem,
    ReviewPage,
    ReviewStatus,
    UnreadableReview,
)
from retold.credentials import ReviewerCredential
from retold.policy.reviewing import refuse_reason
from retold.store.review_reading import cursor_after

PERIODS = {"7": 7, "30": 30, "90": 90}
"""Days the history can look back."""

Handler = Callable[[Request], Awaitable[Response]]
OfSomebody = Callable[["Pages", Request, SignedIn], Awaitable[Response]]


@dataclass(frozen=True)
class Saying:
    """What a page tells about what was just tried."""

    title: str
    text: str
    detail: str = ""
    done: bool = False


@dataclass(frozen=True)
class Draft:
    """A decision as somebody filled it in, so that they need not do so again."""

    resolution: str = ""
    reason: str = ""
    category: str = ""
    version: int = 0
    token: str = ""


class IncompleteError(Exception):
    """The form cannot be sent on like this; the sentence says what is missing."""


class Pages:
    """One method a page. `now` is the time, aware."""

    def __init__(self, desk: Desk, door: Door, rendering: Rendering, *, now: Callable[[], datetime]) -> None:
        self._desk = desk
        self._door = door
        self._rendering = rendering
        self._now = now

    def signed_in(self, handler: OfSomebody) -> Handler:
        """The page for whoever is signed in; everybody else is sent to sign in."""

        async def answer(request: Request) -> Response:
            person = await self._door.who(request)
            return self._door.turned_away(request) if person is None else await handler(self, request, person)

        return answer

    async def queue(self, request: Request, person: SignedIn) -> Response:
        asked, now = _asked(request), self._now()
        wanted = asked.filter(person.reviewer.tenants, now)
        cursor = request.query_params.get("cursor")
        page = await self._page(wanted, cursor)
        return self._rendering.page(
            "queue.html",
            person,
            asked=asked,
            page=page,
            cursor=cursor,
            paging={},
            rules=await self._desk.rules(_records(page)),
            backlog=await self._desk.backlog(person.reviewer.tenants),
            ages=Age,
            saying=await self._just_decided(request, person),
        )

    async def item(self, request: Request, person: SignedIn) -> Response:
        found = await self._visible(request, person)
        return await self._show(request, person, found, saying=await self._just_decided(request, person))

    async def decide(self, request: Request, person: SignedIn) -> Response:
        form = await form_of(request)
        believe(person, form)
        if not person.may_decide:
            raise HTTPException(403, "You are a viewer: you see everything here and decide nothing.")
        found = await self._visible(request, person)
        draft = _draft(form)
        try:
            resolution, category = _complete(draft)
            credential = await self._credential(request, person, draft)
            status = await self._desk.decide(
                credential.decide(
                    _id(found), resolution, expected_version=draft.version, reason=draft.reason, category=category
                )
            )
        except IncompleteError as missing:
            saying = Saying("Not yet", str(missing))
            return await self._show(request, person, found, draft=draft, saying=saying, status=422)
        except (DecisionNotSentError, DecisionUnknownError) as failed:
            saying = Saying(*(wording.NOT_SENT if isinstance(failed, DecisionNotSentError) else wording.UNANSWERED))
            found = await self._visible(request, person)
            return await self._show(request, person, found, draft=draft, saying=saying, status=503)
        except DecisionRefusedError as refused:
            return await self._refused(request, person, draft, refused)
        return await self._on_to_the_next(request, person, found, status)

    async def history(self, request: Request, person: SignedIn) -> Response:
        period = request.query_params.get("days", "30")
        if period not in PERIODS:
            raise HTTPException(400, "Choose one of the periods on offer.")
        asked = Asked(status="ended", sort="newest")
        cursor = request.query_params.get("cursor")
        page = await self._page(asked.filter(person.reviewer.tenants, self._now()), cursor)
        since = self._now() - timedelta(days=PERIODS[period])
        return self._rendering.page(
            "history.html",
            person,
            asked=asked,
            page=page,
            cursor=cursor,
            paging={"days": period},
            rules=await self._desk.rules(_records(page)),
            stats=await self._desk.stats(since, person.reviewer.tenants),
            period=period,
            periods=PERIODS,
        )

    async def help(self, request: Request, person: SignedIn) -> Response:
        return self._rendering.page("help.html", person)

    async def health(self, request: Request) -> Response:
        """For probes: the console answers. Starting it anew would not bring a store back."""
        return PlainTextResponse("ok")

    async def readiness(self, request: Request) -> Response:
        """For probes: the console answers, and so does its store."""
        await self._desk.ping()
        return PlainTextResponse("ok")

    # --- one item ------------------------------------------------------------------------------------------------

    async def _visible(self, request: Request, person: SignedIn) -> ReviewItem | UnreadableReview:
        """The item of this address. One of another tenant is not told from one that never was."""
        found = await self._desk.item(request.path_params["review_id"], self._now())
        if found is None or not person.sees(_tenant(found)):
            raise HTTPException(404, "There is no such item.")
        return found

    async def _show(
        self,
        request: Request,
        person: SignedIn,
        found: ReviewItem | UnreadableReview,
        *,
        draft: Draft | None = None,
        saying: Saying | None = None,
        status: int = 200,
    ) -> Response:
        asked = _asked(request)
        values: dict[str, Any] = {
            "asked": asked,
            "saying": saying,
            "draft": draft or Draft(),
            "following": await self._following(asked, person, found),
            "asks_token": self._door.credentials.of(person.session_hash) is None,
            "reason_max": REVIEW_REASON_MAX_CHARS,
        }
        if isinstance(found, UnreadableReview):
            return self._rendering.page("unreadable.html", person, status=status, review=found, **values)
        return self._rendering.page(
            "item.html",
            person,
            status=status,
            item=found,
            review=found.review,
            words=untrusted.words(found),
            change=untrusted.profile_change(found.profile_before, found.profile_after),
            promotable=PROMOTABLE_CATEGORIES,
            **values,
        )

    async def _refused(
        self, request: Request, person: SignedIn, draft: Draft, refused: DecisionRefusedError
    ) -> Response:
        title, text = wording.REFUSED[refused.why]
        if refused.why is RefusedDecision.UNKNOWN_REVIEW:
            raise HTTPException(404, f"{title}. {text}")
        # As it is now, not as it was when the form was filled in.
        found = await self._visible(request, person)
        return await self._show(
            request, person, found, draft=draft, saying=Saying(title, text, refused.said), status=409
        )

    async def _credential(self, request: Request, person: SignedIn, draft: Draft) -> ReviewerCredential:
        """What signs for this person: held since they signed in, or given once more."""
        held = self._door.credentials.of(person.session_hash)
        if held is not None:
            return held
        if not draft.token:
            raise IncompleteError("Enter your token once more: the console was restarted since you signed in.")
        began = time.monotonic()
        allowed = self._door.may_try(request)
        proven = await self._door.proven(draft.token) if allowed else None
        await self._door.settle(began)
        if not allowed:
            raise IncompleteError("Too many attempts. Wait a minute, then try again.")
        if proven is None or proven[0].reviewer_id != person.reviewer.reviewer_id:
            raise IncompleteError("This is not the token you signed in with.")
        self._door.credentials.hold(person.session_hash, proven[1])
        return proven[1]

    async def _on_to_the_next(
        self, request: Request, person: SignedIn, found: ReviewItem | UnreadableReview, status: ReviewStatus
    ) -> Response:
        asked = _asked(request)
        following = await self._following(asked, person, found)
        path = "/queue" if following is None else f"/reviews/{following}"
        return RedirectResponse(path + asked.query(decided=_id(found)), 303)

    async def _following(self, asked: Asked, person: SignedIn, found: ReviewItem | UnreadableReview) -> str | None:
        """The item to look at after this one, in the order of the queue that was asked for; None: there is no other."""
        wanted = asked.filter(person.reviewer.tenants, self._now(), limit=2)
        after = await self._desk.page(wanted, cursor_after(_listed(found)))
        candidates = [*after.items]
        if not candidates:
            candidates = [*(await self._desk.page(wanted)).items]
        return next((_id(item) for item in candidates if _id(item) != _id(found)), None)

    # --- the queue -----------------------------------------------------------------------------------------------

    async def _page(self, wanted: ReviewFilter, cursor: str | None) -> ReviewPage:
        try:
            return await self._desk.page(wanted, cursor)
        except ValueError as error:
            raise HTTPException(400, "This place in the queue cannot be read. Start from its beginning.") from error

    async def _just_decided(self, request: Request, person: SignedIn) -> Saying | None:
        """What became of the item that was decided a moment ago, as the store has it."""
        if not (review_id := request.query_params.get("decided")):
            return None
        found = await self._desk.item(review_id, self._now())
        if not isinstance(found, ReviewItem) or not person.sees(found.review.principal.tenant):
            return None
        status = found.review.status
        if status not in wording.ENDED:
            return None
        return Saying(wording.STATUS[status].capitalize(), found.record_text or "", done=True)


def _asked(request: Request) -> Asked:
    try:
        return Asked.by(request.query_params)
    except UnknownFilterError as error:
        raise HTTPException(400, f"This filter is not known: {error}.") from error


def _draft(form: dict[str, str]) -> Draft:
    version = form.get("version", "")
    return Draft(
        resolution=form.get("resolution", ""),
        # A browser sends line ends as CR LF and counts them as one character.
        reason=form.get("reason", "").replace("\r\n", "\n").strip(),
        category=form.get("category", ""),
        version=int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0,
        token=form.get("token", ""),
    )


def _complete(draft: Draft) -> tuple[Resolution, ActivationCategory | None]:
    """The resolution, and the category a promotion names.

    Raises:
        IncompleteError: something is missing or too long.
    """
    if draft.resolution not in [resolution.value for resolution in Resolution]:
        raise IncompleteError("Choose one of the three.")
    if draft.version < 1:
        raise IncompleteError("The form does not say which version you saw. Load the page again.")
    if len(draft.reason) > REVIEW_REASON_MAX_CHARS or "\x00" in draft.reason:
        raise IncompleteError(
            f"A reason has {REVIEW_REASON_MAX_CHARS} characters at most; this has {len(draft.reason)}."
        )
    if (unkept := refuse_reason(draft.reason)) is not None:
        raise IncompleteError(f"The {unkept.why}." if draft.reason else "Say why: it is kept, and somebody may ask.")
    resolution = Resolution(draft.resolution)
    if not draft.category or resolution is not Resolution.PROMOTE:
        return resolution, None
    if draft.category not in [category.value for category in PROMOTABLE_CATEGORIES]:
        raise IncompleteError("Choose one of the categories on offer.")
    return resolution, ActivationCategory(draft.category)


def _id(item: Review | ReviewItem | UnreadableReview) -> str:
    return item.review.review_id if isinstance(item, ReviewItem) else item.review_id


def _listed(found: ReviewItem | UnreadableReview) -> Review | UnreadableReview:
    return found.review if isinstance(found, ReviewItem) else found


def _tenant(found: ReviewItem | UnreadableReview) -> str:
    return found.tenant if isinstance(found, UnreadableReview) else found.review.principal.tenant


def _records(page: ReviewPage) -> list[RecordId]:
    return [item.record.id for item in page.items if isinstance(item, Review)]
