"""How records look on a terminal: states in words, ids whole, and nothing a record says is obeyed."""

from __future__ import annotations

import io
from datetime import timedelta

from rich.console import Console

from retold.cli.records_output import render_events, render_record, render_records, render_report
from retold.contracts.lifecycle import LifecycleReport, RecordEvent, RecordPage, WriteOutcome
from retold.contracts.record import MemoryRecord, RecordRef, RecordStatus, RecordType
from tests.unit.cli.examples import AT

RECORD = MemoryRecord(
    id="11111111-2222-3333-4444-555555555555",
    tenant="acme",
    user="tove",
    type=RecordType.SEMANTIC,
    subject="user",
    attribute="home_city",
    text="Lives in [bold]Bern[/bold]\x1b[2J",
    created_at=AT,
)


def shown(render: object, *values: object) -> str:
    console = Console(file=io.StringIO(), width=60, force_terminal=False)
    render(console, *values)  # type: ignore[operator]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_list_has_whole_ids_and_says_where_it_goes_on() -> None:
    page = shown(render_records, RecordPage(records=(RECORD,), more=True))
    assert page.splitlines()[0] == f"{RECORD.id}  version 1, confirmed, conditional"
    assert "Lives in [bold]Bern[/bold]" in page and "\x1b" not in page
    assert page.splitlines()[-1] == f"more with --after {RECORD.id}"
    assert shown(render_records, RecordPage()) == "Nothing is remembered.\n"


def test_a_record_says_whether_it_holds_and_why_not() -> None:
    aside = RECORD.model_copy(
        update={
            "suspended_by": "rome",
            "suspended_from": AT,
            "suspended_until": AT + timedelta(days=1),
            "conflicting": True,
            "conflicts_with": ("other",),
            "valid_until": AT + timedelta(days=2),
        }
    )
    page = shown(render_record, aside)
    for said in (
        "in conflict, suspended at times, until ",
        "suspended   by rome until ",
        "conflicts   other",
        "until before",
    ):
        assert said in page
    gone = shown(render_record, RECORD.model_copy(update={"status": RecordStatus.SUPERSEDED, "superseded_by": "new"}))
    assert "superseded, conditional" in gone and "replaced by new" in gone


def test_a_report_names_every_record_that_was_touched() -> None:
    ref, other = RecordRef(id="new", version=1), RecordRef(id="old", version=2)
    report = LifecycleReport(
        outcomes=(
            WriteOutcome(index=0, disposition="written", ref=ref, superseded=(other,)),
            WriteOutcome(index=1, disposition="unchanged", ref=other),
            WriteOutcome(index=2, disposition="refused", field="text", message="seems to hold a secret"),
        )
    )
    assert shown(render_report, report, "remembered").splitlines() == [
        "remembered new, version 1",
        "  old, version 2: superseded by it",
        "nothing to do: old, version 2",
        "refused: text: seems to hold a secret",
    ]


def test_a_history_says_who_why_and_what_is_different() -> None:
    before = {"version": 1, "status": "confirmed"}
    after = {"version": 2, "status": "superseded", "superseded_by": "new"}
    event = RecordEvent(at=AT, actor="ada", event="record.superseded", before=before, after=after, reason="moved")
    page = shown(render_events, (event,))
    assert page.splitlines()[0].endswith("  superseded")
    assert page.splitlines()[1:] == [
        "  by ada: moved",
        "  status: confirmed -> superseded",
        "  superseded_by: none -> new",
        "  version: 1 -> 2",
    ]
