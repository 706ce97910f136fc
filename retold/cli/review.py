"""`retold review` and `retold reviewers`: the queue, one decision at a time, and the people who decide.

Items are read from the store with the access this machine has; a decision goes through Temporal, signed with the
reviewer's own token. Exit codes: 0 done; 1 could not be asked; 2 wrongly called; 3 the decision was refused; 4 (of
`stats --check`) the backlog is over its limits.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from datetime import datetime, timedelta
from typing import Annotated

import typer
from pydantic import ValidationError

from retold.cli import options
from retold.cli.failures import CommandError
from retold.cli.opened_store import opened_store
from retold.cli.output import readable
from retold.cli.review_output import (
    render_item,
    render_page,
    render_reviewers,
    render_stats,
    render_unreadable,
)
from retold.cli.running_stack import Whereabouts, connected, read_settings
from retold.cli.terminal import complain, err, out, write_json
from retold.client import (
    DecisionRefusedError,
    InvalidTurnError,
    Reviews,
    UnknownReviewError,
    missing_review_attributes,
    register_review_attributes,
)
from retold.contracts.activation import ActivationCategory, ActivationReason
from retold.contracts.refusal import refusal_text
from retold.contracts.review import (
    BacklogState,
    Resolution,
    Reviewer,
    ReviewerRole,
    ReviewFilter,
    ReviewItem,
    ReviewOutcome,
    ReviewStatus,
    UnreadableReview,
)
from retold.policy.limits import utc_now

TOKEN_VARIABLE = "RETOLD_REVIEWER_TOKEN"
REFUSED = 3
OVER_LIMIT = 4

ReviewId = Annotated[str, typer.Argument(metavar="ID", help="The review's id, from `review list`.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, at most 500 characters; kept in the audit log.")]
Seen = Annotated[
    int | None,
    typer.Option("--seen-version", min=1, help="The version you looked at. Default: the one it has now."),
]
ReviewerId = Annotated[str, typer.Argument(metavar="ID", help="The reviewer's id; the audit log names it.")]


# --- the queue ------------------------------------------------------------------------------------------------------


def list_reviews(
    status: Annotated[list[ReviewStatus] | None, typer.Option(help="In this state; repeat it. Default: open.")] = None,
    tenant: Annotated[list[str] | None, typer.Option(help="Only this tenant's; repeat it.")] = None,
    reason: Annotated[ActivationReason | None, typer.Option(help="Only what came for this reason.")] = None,
    language: Annotated[str | None, typer.Option(help="Only words in this language, by its code.")] = None,
    older_than_hours: Annotated[float | None, typer.Option(min=0, help="Only what waits longer.")] = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Default: the oldest first.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most this many.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Go on where the last page ended.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the queue, the oldest item first."""
    now = utc_now()
    try:
        wanted = ReviewFilter(
            statuses=tuple(status) if status else (ReviewStatus.OPEN,),
            tenants=tuple(tenant) if tenant else None,
            reason=reason,
            language=language,
            opened_before=None if older_than_hours is None else now - timedelta(hours=older_than_hours),
            newest_first=newest_first,
            limit=limit,
        )
    except ValidationError as error:
        raise InvalidTurnError(refusal_text(error)) from error

    async def read() -> None:
        async with opened_store(read_settings()) as (store, _):
            page = await store.reviews.page(wanted, cursor)
        write_json(page) if as_json else render_page(out(), page, now)

    asyncio.run(read())


def show_review(review_id: ReviewId, as_json: options.AsJson = False) -> None:
    """Show one item whole: the user's own words, the rule, why it came here, and what would change."""
    item = asyncio.run(_item(review_id))
    if as_json:
        write_json(item)
    elif isinstance(item, UnreadableReview):
        render_unreadable(out(), item)
    else:
        render_item(out(), item, utc_now())


def approve(
    context: typer.Context,
    review_id: ReviewId,
    reason: Reason,
    category: Annotated[
        ActivationCategory | None, typer.Option(help="Which category it is, where no policy named one.")
    ] = None,
    seen_version: Seen = None,
    as_json: options.AsJson = False,
) -> None:
    """Promote it: from the user's next session on, it is part of every answer. Exit code 3 if that is refused."""
    _decide(context, review_id, Resolution.PROMOTE, reason, seen_version, category, as_json)


def keep(
    context: typer.Context,
    review_id: ReviewId,
    reason: Reason,
    seen_version: Seen = None,
    as_json: options.AsJson = False,
) -> None:
    """Keep it conditional: remembered, and used where it helps an answer. Exit code 3 if that is refused."""
    _decide(context, review_id, Resolution.KEEP_CONDITIONAL, reason, seen_version, None, as_json)


def reject(
    context: typer.Context,
    review_id: ReviewId,
    reason: Reason,
    seen_version: Seen = None,
    as_json: options.AsJson = False,
) -> None:
    """Reject the record: it is never used again. Exit code 3 if that is refused."""
    _decide(context, review_id, Resolution.REJECT, reason, seen_version, None, as_json)


def stats(
    days: Annotated[float, typer.Option(min=0, help="Of the items opened in the last days.")] = 30,
    check: Annotated[bool, typer.Option("--check", help="Exit code 4 if the backlog is over a limit.")] = False,
    max_age_days: Annotated[float, typer.Option(min=0, help="For --check: how old the oldest may be.")] = 7,
    as_json: options.AsJson = False,
) -> None:
    """Say how the queue is doing: how full, how old, what became of items and how long people took."""
    now = utc_now()
    queue = read_settings().review

    async def read() -> BacklogState:
        async with opened_store(read_settings()) as (store, _):
            found = await store.reviews.stats(now - timedelta(days=days), bound=queue.backlog_bound, owner=queue.owner)
        write_json(found) if as_json else render_stats(out(), found, now)
        return found.backlog

    backlog = asyncio.run(read())
    if check and _over_limit(backlog, now, timedelta(days=max_age_days)):
        raise typer.Exit(OVER_LIMIT)


def setup(context: typer.Context, as_json: options.AsJson = False) -> None:
    """Register the search attributes by which Temporal's page lists reviews. Again: nothing happens."""
    settings = read_settings()

    async def register() -> None:
        async with connected(options.whereabouts(context), settings) as stack:
            added = await register_review_attributes(stack.client)
            missing = await missing_review_attributes(stack.client)
        if as_json:
            write_json({"added": added, "missing": missing})
        else:
            out().print(f"registered: {', '.join(added) or 'nothing, all were there'}", markup=False)

    asyncio.run(register())


# --- the people -----------------------------------------------------------------------------------------------------


def add_reviewer(
    reviewer_id: ReviewerId,
    name: Annotated[str, typer.Option(help="What the person is called.")],
    role: Annotated[ReviewerRole, typer.Option(help="A viewer sees the queue and decides nothing.")] = (
        ReviewerRole.REVIEWER
    ),
    tenant: Annotated[
        list[str] | None, typer.Option(help="Only this tenant's items; repeat it. Default: all tenants.")
    ] = None,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Register a reviewer and print their token: once, here, and never again."""

    async def add() -> tuple[Reviewer, str]:
        async with opened_store(read_settings()) as (store, _):
            return await store.reviewers.register(
                reviewer_id, name, role, tenants=tenant or None, actor=actor or getpass.getuser(), at=utc_now()
            )

    reviewer, token = asyncio.run(add())
    if as_json:
        write_json({"reviewer": reviewer, "token": token})
        return
    render_reviewers(out(), [reviewer])
    sys.stdout.write(f"{token}\n")
    err().print(f"This is the only time the token is shown. They set it as {TOKEN_VARIABLE}, or sign in with it.")


def list_reviewers(as_json: options.AsJson = False) -> None:
    """List everybody who may look or decide, disabled people too."""

    async def read() -> None:
        async with opened_store(read_settings()) as (store, _):
            found = await store.reviewers.list()
        write_json(found) if as_json else render_reviewers(out(), found)

    asyncio.run(read())


def disable_reviewer(
    reviewer_id: ReviewerId, reason: options.Why, actor: options.Actor = None, as_json: options.AsJson = False
) -> None:
    """Take a reviewer's access away: their token opens nothing from now on. What they decided stays."""

    async def disable() -> None:
        async with opened_store(read_settings()) as (store, _):
            disabled = await store.reviewers.disable(
                reviewer_id, actor=actor or getpass.getuser(), reason=reason, at=utc_now()
            )
        write_json(disabled) if as_json else render_reviewers(out(), [disabled])

    asyncio.run(disable())


# --- how it is done -------------------------------------------------------------------------------------------------


async def _item(review_id: str) -> ReviewItem | UnreadableReview:
    async with opened_store(read_settings()) as (store, profiles):
        found = await store.reviews.item(review_id, utc_now(), assemble=profiles.assemble)
    if found is None:
        raise UnknownReviewError(f"there is no review {review_id}: `retold review list` shows what there is")
    return found


def _decide(
    context: typer.Context,
    review_id: str,
    resolution: Resolution,
    reason: str,
    seen_version: int | None,
    category: ActivationCategory | None,
    as_json: bool,
) -> None:
    token = _token()
    try:
        outcome = asyncio.run(
            _resolve(options.whereabouts(context), review_id, resolution, reason, seen_version, category, token)
        )
    except DecisionRefusedError as refused:
        kind = type(refused).__name__.removesuffix("Error")
        if as_json:
            write_json({"refused": kind, "why": str(refused)})
        complain(f"{kind}: {refused}")
        raise typer.Exit(REFUSED) from refused
    if as_json:
        write_json(outcome)
        return
    console = out()
    said = f"{outcome.status.value.replace('_', ' ')}: record {outcome.record.id}, now version {outcome.record.version}"
    console.print(readable(console, said), markup=False)


async def _resolve(
    where: Whereabouts,
    review_id: str,
    resolution: Resolution,
    reason: str,
    seen_version: int | None,
    category: ActivationCategory | None,
    token: str,
) -> ReviewOutcome:
    settings = read_settings()
    if seen_version is None:
        item = await _item(review_id)
        seen_version = item.version if isinstance(item, UnreadableReview) else item.review.version
    async with connected(where, settings) as stack:
        queue = settings.worker.lifecycle_queue
        await stack.expect_worker(queue)
        return await Reviews(stack.client, task_queue=queue).resolve(
            review_id, resolution, expected_version=seen_version, reason=reason, token=token, category=category
        )


def _token() -> str:
    """The reviewer's token, from the environment or asked for: an argument could be read by anybody on the machine."""
    if found := os.environ.get(TOKEN_VARIABLE):
        return found
    if not sys.stdin.isatty():
        raise CommandError("a decision needs your reviewer's token", f"set {TOKEN_VARIABLE}")
    return getpass.getpass("Your reviewer's token (not shown): ")


def _over_limit(backlog: BacklogState, now: datetime, max_age: timedelta) -> bool:
    oldest = backlog.oldest_opened_at
    return backlog.full or backlog.deferred > 0 or (oldest is not None and now - oldest > max_age)
