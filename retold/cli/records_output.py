"""How records and their changes look on a terminal.

What a user or a record says is shown as it is and never obeyed, as in `retold.cli.output`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console

from retold.cli.output import readable
from retold.contracts.lifecycle import LifecycleReport, RecordEvent, RecordPage
from retold.contracts.record import MemoryRecord, RecordRef, RecordStatus

_EFFECTS = ("superseded", "suspended", "conflicting", "released")
_SAID = {
    "superseded": "superseded by it",
    "suspended": "suspended for its time",
    "conflicting": "in conflict with it; neither is used until that is resolved",
    "released": "holds again",
}


def render_report(console: Console, report: LifecycleReport, what: str) -> None:
    """What a change did, one line a record it touched."""
    for outcome in report.outcomes:
        if outcome.ref is None:
            _line(console, f"refused: {outcome.field}: {outcome.message}")
            continue
        done = what if outcome.disposition == "written" else "nothing to do:"
        _line(console, f"{done} {_ref(outcome.ref)}", bold=True)
        for effect in _EFFECTS:
            for ref in getattr(outcome, effect):
                _line(console, f"  {_ref(ref)}: {_SAID[effect]}")


def render_records(console: Console, page: RecordPage) -> None:
    """Two rows a record; the id is never shortened, so that it can be copied."""
    if not page.records:
        _line(console, "Nothing is remembered.")
    for record in page.records:
        _line(console, f"{record.id}  {_state(record)}", bold=True)
        about = record.subject if record.attribute is None else f"{record.subject}, {record.attribute}"
        _line(console, f"  {record.text}  ({about})")
    if page.more:
        _line(console, f"more with --after {page.records[-1].id}", dim=True)


def render_record(console: Console, record: MemoryRecord) -> None:
    _line(console, f"record {_ref(record.ref)}: {_state(record)}", bold=True)
    rows = [
        ("says", record.text),
        ("about", record.subject),
        ("attribute", record.attribute or "none: it replaces nothing"),
        ("scope", record.scope),
        ("kind", f"{record.type.value}, {record.category.value}"),
        ("source", record.source.value),
        ("told", _time(record.told_at)),
        ("holds", _window(record)),
    ]
    if record.suspended_by is not None:
        until = "while that one lives" if record.suspended_until is None else f"until {_time(record.suspended_until)}"
        rows.append(("suspended", f"by {record.suspended_by} {until}"))
    links = (
        ("conflicts", ", ".join(record.conflicts_with)),
        ("replaced", record.supersedes),
        ("replaced by", record.superseded_by),
        ("evidence", ", ".join(record.evidence)),
    )
    for label, value in (*rows, *((label, value) for label, value in links if value)):
        _line(console, f"  {label:<12}{value}")


def render_events(console: Console, events: Sequence[RecordEvent]) -> None:
    """One change a row: when, what, by whom and why, then what is different."""
    if not events:
        _line(console, "Nothing is on record about it.")
    for event in events:
        _line(console, f"{_time(event.at)}  {event.event.removeprefix('record.').replace('_', ' ')}", bold=True)
        _line(console, f"  by {event.actor}: {event.reason}")
        before, after = event.before or {}, event.after or {}
        for field in sorted(before.keys() | after.keys()):
            if before.get(field) != after.get(field):
                _line(console, f"  {field}: {before.get(field, 'none')} -> {after.get(field, 'none')}")


def _state(record: MemoryRecord) -> str:
    said = [f"version {record.version}", record.status.value, record.activation.value]
    if record.status in (RecordStatus.CONFIRMED, RecordStatus.PROVISIONAL):
        said += ["in conflict"] if record.conflicting else []
        said += ["suspended at times"] if record.suspended_by is not None else []
        said += [f"until {_time(record.valid_until)}"] if record.valid_until is not None else []
    return ", ".join(said)


def _window(record: MemoryRecord) -> str:
    begins = "since ever" if record.valid_from is None else f"from {_time(record.valid_from)}"
    ends = "" if record.valid_until is None else f", until before {_time(record.valid_until)}"
    return begins + ends + (", said for a time only" if record.temporary else "")


def _time(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def _ref(ref: RecordRef) -> str:
    return f"{ref.id}, version {ref.version}"


def _line(console: Console, text: str, *, bold: bool = False, dim: bool = False) -> None:
    style = "bold" if bold else "dim" if dim else None
    console.print(readable(console, text), style=style, markup=False, highlight=False, soft_wrap=True)
