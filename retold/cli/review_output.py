"""How reviews look on a terminal: the queue, one item with the user's words, and how the queue is doing.

What a user, a record or a reviewer wrote is shown as it is and never obeyed, as in `retold.cli.output`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.console import Console
from rich.text import Text

from retold.cli.output import readable
from retold.contracts.review import (
    BacklogState,
    Review,
    Reviewer,
    ReviewItem,
    ReviewPage,
    ReviewStats,
    UnreadableReview,
)


def render_page(console: Console, page: ReviewPage, now: datetime) -> None:
    """Two rows an item; the id is never shortened, so that it can be copied."""
    if not page.items:
        _line(console, "No review matches.")
    for item in page.items:
        _line(console, f"{item.review_id}  {age(now - item.opened_at)}", bold=True)
        _line(console, f"  {_summary(item)}")
    shown = len(page.items)
    if shown < page.total:
        more = f"; more with --cursor {page.next_cursor}" if page.next_cursor else ""
        _line(console, f"{shown} of {page.total}{more}", dim=True)


def render_item(console: Console, item: ReviewItem, now: datetime) -> None:
    """Everything about one item: who said what, what is proposed and why it came here, what would change."""
    review = item.review
    _line(console, f"review {review.review_id}, version {review.version}: {_words(review.status.value)}", bold=True)
    opened = f"{age(now - review.opened_at)} old, expires {review.expires_at:%Y-%m-%d %H:%M}Z"
    rows = [
        ("whose", f"{review.principal.user} of {review.principal.tenant}"),
        ("record", f"{review.record.id}, version {review.record.version}"),
        ("queue", f"{opened}, owner {review.owner}"),
        ("proposed", _proposal(review)),
        ("came here", f"{_words(review.reason.value)}; {_policy(review)}"),
    ]
    if review.resolved_by is not None and review.resolved_at is not None:
        because = f": {review.resolution_reason}" if review.resolution_reason else ""
        rows.append(("decided", f"by {review.resolved_by}, {review.resolved_at:%Y-%m-%d %H:%M}Z{because}"))
    for name, value in rows:
        _line(console, f"  {name:<10} {value}")
    _section(console, "The user said")
    console.print(_said(console, item), soft_wrap=True)
    _section(console, "The rule it would become")
    _line(console, f"  {item.record_text or '(erased)'}")
    _section(console, "The profile of the next session, now")
    _block(console, item.profile_before or "(empty)")
    _section(console, "and if it is promoted")
    _block(console, item.profile_after or "(empty)")
    _section(console, "History")
    for event in item.history:
        because = f" ({event.reason})" if event.reason else ""
        _line(console, f"  {event.at:%Y-%m-%d %H:%M}Z  {event.event}  {event.actor}{because}")


def render_unreadable(console: Console, item: UnreadableReview) -> None:
    _line(console, f"review {item.review_id}: {_summary(item)}", bold=True)
    _line(console, "  this version of Retold cannot read it; it can be kept or rejected here, or promoted by the other")


def render_stats(console: Console, stats: ReviewStats, now: datetime) -> None:
    _line(console, backlog_line(stats.backlog, now), bold=True)
    _line(console, f"since {stats.since:%Y-%m-%d %H:%M}Z")
    for title, counted in (
        ("became", stats.by_status),
        ("came for", stats.by_reason),
        ("decided by", stats.by_reviewer),
    ):
        if counted:
            listed = ", ".join(f"{_words(name)} {count}" for name, count in sorted(counted.items()))
            _line(console, f"  {title:<10} {listed}")
    if stats.median_wait_s is not None and stats.p95_wait_s is not None:
        waits = f"half within {_length(stats.median_wait_s)}, 95 % within {_length(stats.p95_wait_s)}"
        _line(console, f"  {'took':<10} {waits}")


def render_reviewers(console: Console, reviewers: Sequence[Reviewer]) -> None:
    if not reviewers:
        _line(console, "There are no reviewers: retold reviewers add ID --name NAME")
    for reviewer in reviewers:
        tenants = "all tenants" if reviewer.tenants is None else ", ".join(reviewer.tenants) or "no tenant"
        state = "" if reviewer.disabled_at is None else f", disabled since {reviewer.disabled_at:%Y-%m-%d}"
        _line(console, f"{reviewer.reviewer_id}  {reviewer.name}: {reviewer.role.value}, {tenants}{state}")


def backlog_line(backlog: BacklogState, now: datetime) -> str:
    oldest = "" if backlog.oldest_opened_at is None else f", the oldest {age(now - backlog.oldest_opened_at)}"
    deferred = f", {backlog.deferred} wait for room" if backlog.deferred else ""
    return f"{backlog.open} open of {backlog.bound}{deferred}{oldest}; owner {backlog.owner}"


def age(length: timedelta) -> str:
    """How long something waits, in the one unit that says it."""
    return _length(length.total_seconds())


def _length(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"


def _summary(item: Review | UnreadableReview) -> str:
    if isinstance(item, UnreadableReview):
        return f"{_words(item.status)}, {item.tenant}: cannot be read ({item.problem})"
    language = f", {item.language}" if item.language else ""
    return (
        f"{_words(item.status.value)}, {item.principal.tenant}: {_words(item.reason.value)}; "
        f"proposed {_proposal(item)}{language}"
    )


def _proposal(review: Review) -> str:
    category = "no category" if review.category is None else _words(review.category.value)
    return f"{review.proposed.value} ({category})"


def _policy(review: Review) -> str:
    if review.policy is None:
        return "no policy answered"
    confidence = "" if review.confidence is None else f" at confidence {review.confidence:.2f}"
    return f"{review.policy} {review.policy_version or ''}".strip() + confidence


def _said(console: Console, item: ReviewItem) -> Text:
    """The user's turn with the evidence marked, in words too: colour alone says nothing in a pipe."""
    evidence = item.review.evidence
    if item.turn_text is None:
        return Text("  (the turn is erased)")
    if evidence is None:
        return Text(f"  {readable(console, item.turn_text)}")
    parts = (
        item.turn_text[: evidence.start],
        item.turn_text[evidence.start : evidence.end],
        item.turn_text[evidence.end :],
    )
    before, span, after = (readable(console, part) for part in parts)
    return Text.assemble("  ", before, (f">>{span}<<", "bold reverse"), after)


def _section(console: Console, title: str) -> None:
    console.print()
    _line(console, title, bold=True)


def _block(console: Console, text: str) -> None:
    for row in text.splitlines():
        _line(console, f"  {row}")


def _line(console: Console, text: str, *, bold: bool = False, dim: bool = False) -> None:
    style = "bold" if bold else "dim" if dim else None
    console.print(readable(console, text), style=style, markup=False, highlight=False, soft_wrap=True)


def _words(slug: str) -> str:
    return slug.replace("_", " ")
