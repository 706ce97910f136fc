"""How a turn looks on a terminal: the answer, what became of the turn, and everything that led there.

Pure presentation for `retold turn`, `retold demo` and `retold decisions show`: values in, lines out. It loads
nothing; whoever calls it brings the texts, because a decision only refers to them.

Whatever a user, a record or a model wrote is shown as it is and never obeyed: square brackets are not markup, and
control characters and direction overrides are spelled out instead of sent to the terminal. Colour repeats what the
words say, so the page reads the same without it; 80 columns are enough, fewer wrap.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from retold.cli.reasons import explain
from retold.contracts.decision import StageTiming, TurnDecision
from retold.contracts.disposition import Disposition
from retold.contracts.record import RecordId, RecordRef
from retold.contracts.stages import SearchEntry, Stage
from retold.contracts.turn import BUDGET_DEFAULT

RECORD_ROWS = 2
"""A candidate's text is shortened to this many rows: enough to recognise a record, not to read it."""
BAR_MAX_CELLS = 40

_STYLES = {
    Disposition.BASELINE_NO_GAPS: "cyan",
    Disposition.BASELINE_NO_CANDIDATES: "cyan",
    Disposition.BASELINE_EMPTY_ADMISSION: "cyan",
    Disposition.BASELINE_POLICY_FAILURE: "red",
    Disposition.BASELINE_BUDGET_EXHAUSTED: "yellow",
    Disposition.ADMITTED_NOT_APPLIED: "yellow",
    Disposition.REGENERATED: "green",
    Disposition.SHADOW_WOULD_REGENERATE: "magenta",
    Disposition.CANCELLED: "yellow",
    Disposition.FAILED: "red",
}


def render_turn(
    console: Console,
    decision: TurnDecision,
    *,
    user_text: str | None,
    answer: str | None,
    draft: str | None = None,
    texts: Mapping[RecordId, str] | None = None,
) -> None:
    """Print one turn whole.

    Args:
        console: where to; its width, encoding and colour are respected.
        decision: the turn's row of the decision log.
        user_text: what the user said; None when it was forgotten meanwhile.
        answer: what the host got; None when there was no answer (`failed`, `cancelled`) or it was forgotten.
        draft: the answer before memory, shown where it differs from `answer`; None when it is not at hand.
        texts: record texts by id. A record without one (forgotten meanwhile) is listed by its id alone.
    """
    page = _Page.of(console)
    sections: tuple[Iterator[RenderableType], ...] = (
        _what_was_asked(page, decision, user_text),
        _what_became_of_it(page, decision),
        _what_was_missing(page, decision),
        _what_was_found(page, decision, texts or {}),
        _what_was_answered(page, decision, answer, draft),
        _how_long_it_took(page, decision),
    )
    for section in sections:
        rows = list(section)
        for row in rows:
            console.print(row, highlight=False)
        if rows:
            console.print()


def render_decision_list(console: Console, decisions: Sequence[TurnDecision]) -> None:
    """Print decisions in the given order, two rows each; the id is never shortened, so that it can be copied."""
    page = _Page.of(console)
    if not decisions:
        console.print("No decision matches.", highlight=False)
        return
    for decision in decisions:
        console.print(
            Text.assemble(
                (f"{decision.at:%Y-%m-%d %H:%M:%S}Z", "dim"),
                "  ",
                (page.readable(decision.decision_id), "bold"),
                f"  {_milliseconds(_total_ms(decision))}",
            ),
            highlight=False,
        )
        where = f"  {page.one_line(decision.session_id)} / {page.one_line(decision.turn_id)}"
        console.print(Text.assemble("  ", _outcome(decision), where), highlight=False)


def readable(console: Console, text: str) -> str:
    """The text as `console` can show it: control characters and what its encoding lacks are spelled out."""
    return _Page.of(console).readable(text)


def render_searches(console: Console, searches: Sequence[SearchEntry]) -> None:
    """Print the searches of a turn: for each gap what its generators found and why the rest was dropped."""
    page = _Page.of(console)
    if searches:
        console.print(Text("Searches", style="bold"), highlight=False)
    for search in searches:
        found = ", ".join(f"{name} {count}" for name, count in search.generated.items()) or "nothing"
        rows = [f"found: {found}; kept {len(search.kept)}; {_milliseconds(search.elapsed_ms)}"]
        rows += [
            f"{stage} dropped " + ", ".join(f"{count} {_words(why)}" for why, count in reasons.items())
            for stage, reasons in search.dropped.items()
            if reasons
        ]
        console.print(_numbered(search.gap_index + 1, Text(page.one_line(search.query))), highlight=False)
        for row in rows:
            console.print(_numbered(None, Text(page.one_line(row), style="dim")), highlight=False)
    if searches:
        console.print()


@dataclass(frozen=True, kw_only=True)
class _Page:
    """What the terminal can show: how wide a row is, and which characters its encoding knows."""

    width: int
    encoding: str

    @classmethod
    def of(cls, console: Console) -> _Page:
        return cls(width=max(console.width, 1), encoding=console.encoding)

    @property
    def bar(self) -> str:
        return "█" if self.readable("█") == "█" else "#"

    def readable(self, text: str) -> str:
        """The text with everything spelled out that a terminal would act on or cannot show. Rows are kept."""
        spelled = "".join(_spelled_out(char) if _acts_on_a_terminal(char) else char for char in text)
        return spelled.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def one_line(self, text: str) -> str:
        return " ".join(self.readable(text).split())

    def shortened(self, text: str, cells: int) -> str:
        """One line of at most `cells` cells; three dots say that something was left out."""
        line = self.one_line(text)
        if cell_len(line) <= cells:
            return line
        return set_cell_size(line, max(cells - 3, 0)).rstrip() + "..."

    def column(self, text: str, cells: int) -> str:
        """Shortened and padded to exactly `cells` cells."""
        return set_cell_size(self.shortened(text, cells), cells)


def _acts_on_a_terminal(char: str) -> bool:
    """Control and separator characters but the line break, and format characters such as direction overrides."""
    # Joiners are format characters too, but they only shape the letters or emoji beside them.
    return char not in "\n\u200c\u200d" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _spelled_out(char: str) -> str:
    if char == "\t":
        return "    "
    return "" if char == "\r" else char.encode("unicode_escape", "backslashreplace").decode("ascii")


def _what_was_asked(page: _Page, decision: TurnDecision, user_text: str | None) -> Iterator[RenderableType]:
    principal = decision.principal
    yield _labelled(
        "Turn",
        Text(
            f"{page.one_line(decision.turn_id)}, session {page.one_line(decision.session_id)}, "
            f"user {page.one_line(principal.user)} of {page.one_line(principal.tenant)}"
        ),
    )
    yield _labelled("User", _forgotten() if user_text is None else Text(page.readable(user_text), style="bold"))


def _what_became_of_it(page: _Page, decision: TurnDecision) -> Iterator[RenderableType]:
    yield _labelled("Outcome", _outcome(decision))
    yield _labelled("", Text(explain(decision.disposition, decision.reason)))
    if decision.redelivered:
        yield _labelled("", Text("A worker died during this turn; it was repeated by another one."))
    if decision.failures:
        yield _labelled("Failures", Text(", ".join(page.one_line(failure) for failure in decision.failures)))
    yield _labelled("Decision", Text(page.readable(decision.decision_id), style="dim"))


def _what_was_missing(page: _Page, decision: TurnDecision) -> Iterator[RenderableType]:
    if not decision.gaps and not decision.gaps_dropped:
        return
    yield Text("Gaps the planner named", style="bold")
    for number, gap in enumerate(decision.gaps, start=1):
        category = page.column(_words(gap.category.value), 22)
        yield _numbered(number, Text.assemble(category, " ", page.one_line(gap.query)))
    if decision.gaps_dropped:
        yield Text(f"  {decision.gaps_dropped} more dropped: unknown category, blank, repeated or over the cap")


def _what_was_found(page: _Page, decision: TurnDecision, texts: Mapping[RecordId, str]) -> Iterator[RenderableType]:
    if decision.profile_records:
        yield _labelled("Profile", Text(", ".join(page.one_line(ref.id) for ref in decision.profile_records)))
    if not decision.candidates:
        return
    yield Text("Candidates, and what the judge made of them", style="bold")
    retrieved = decision.outcomes.retrieve
    scores = {found.ref.id: found.score for found in retrieved.candidates} if retrieved is not None else {}
    verdicts = {verdict.id: _words(verdict.verdict.value) for verdict in decision.verdicts}
    for number, ref in enumerate(decision.candidates, start=1):
        score = scores.get(ref.id)
        use = _use(decision, ref)
        yield _numbered(
            number,
            Text.assemble(
                (page.column(ref.id, 30), "bold"),
                f" v{ref.version:<3} ",
                f"{'' if score is None else format(score, '.3f'):>6}  ",
                f"{verdicts.get(ref.id, 'not judged'):<20}  ",
                (use, "green" if use == "used" else "yellow"),
            ),
        )
        yield _numbered(None, _record_text(page, texts.get(ref.id)))


def _use(decision: TurnDecision, ref: RecordRef) -> str:
    """What became of a candidate after the judge; nothing for one that was not admitted."""
    if ref in decision.applied:
        return "used"
    if ref in decision.gone:
        return "gone"
    return "admitted" if ref in decision.admitted else ""


def _record_text(page: _Page, text: str | None) -> Text:
    if text is None:
        return _forgotten()
    # Whole words wrap, so a row may stay up to a word short: leave that much of the room unused.
    room = max(page.width - 5, 1)
    return Text(page.shortened(text, room * RECORD_ROWS - min(12, room // 2)), style="italic")


def _what_was_answered(
    page: _Page, decision: TurnDecision, answer: str | None, draft: str | None
) -> Iterator[RenderableType]:
    if answer is None:
        had_none = decision.disposition in (Disposition.FAILED, Disposition.CANCELLED)
        yield _labelled("Answer", Text("none", style="dim") if had_none else _forgotten())
        return
    if draft is not None and draft != answer:
        yield _labelled("Draft", Text(page.readable(draft), style="dim"))
    yield _labelled("Answer", Text(page.readable(answer), style="bold"))
    if decision.disposition is Disposition.REGENERATED:
        used = ", ".join(page.one_line(ref.id) for ref in decision.applied)
        yield _labelled("", Text(f"written again with: {used}", style="dim"))
    else:
        yield _labelled("", Text("the draft, unchanged", style="dim"))


def _how_long_it_took(page: _Page, decision: TurnDecision) -> Iterator[RenderableType]:
    if not decision.timings:
        return
    yield Text("Time", style="bold")
    total_ms = _total_ms(decision)
    cells = max(min(BAR_MAX_CELLS, page.width - 36), 4)
    for timing in decision.timings:
        bar = _bar(timing, total_ms, cells, page.bar)
        failure = timing.failure.kind.value if timing.failure is not None else ""
        yield Text.assemble(
            f"  {timing.stage.value:<10} {_milliseconds(timing.elapsed_ms):>10}  ",
            (bar, "red" if failure else "blue"),
            f"  {failure}",
        )
    drafted = [timing.ended_ms for timing in decision.timings if timing.stage is Stage.DRAFT]
    after_draft = f", {_milliseconds(total_ms - drafted[0])} of it after the draft" if drafted else ""
    yield Text(f"  {'total':<10} {_milliseconds(total_ms):>10}{after_draft}")
    yield _numbered(None, Text(f"budget {_budget(decision)}; durability {decision.durability.value}", style="dim"))


def _bar(timing: StageTiming, total_ms: float, cells: int, full: str) -> str:
    """The stage on a line of `cells` that stands for the whole turn: at its place, at least one cell long."""
    if total_ms <= 0:
        return set_cell_size(full, cells)
    start = min(int(timing.started_ms / total_ms * cells), cells - 1)
    length = min(max(round(timing.elapsed_ms / total_ms * cells), 1), cells - start)
    return set_cell_size(" " * start + full * length, cells)


def _budget(decision: TurnDecision) -> str:
    effective = decision.effective_budget_ms
    meaning = "none, stage limits only" if effective is None else f"{effective:,} ms after the draft"
    return f"{meaning} (the default)" if decision.requested_budget_ms == BUDGET_DEFAULT else meaning


def _outcome(decision: TurnDecision) -> Text:
    style = f"bold {_STYLES[decision.disposition]}"
    return Text.assemble((decision.disposition.value, style), f" / {decision.reason.value}")


def _forgotten() -> Text:
    return Text("(its text is no longer stored)", style="dim italic")


def _labelled(label: str, content: Text) -> Table:
    """A label in a column of its own, so that long text wraps beside it and not under it."""
    row = Table.grid(padding=(0, 1))
    row.add_column(width=8, overflow="crop", no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row(Text(label, style="bold"), content)
    return row


def _numbered(number: int | None, content: Text) -> Table:
    """An entry of a list; without a number, a further row of the entry above it."""
    row = Table.grid(padding=(0, 1))
    row.add_column(width=3, justify="right", overflow="crop", no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row("" if number is None else str(number), content)
    return row


def _total_ms(decision: TurnDecision) -> float:
    return max((timing.ended_ms for timing in decision.timings), default=0.0)


def _milliseconds(elapsed_ms: float) -> str:
    return f"{elapsed_ms:.1f} ms" if elapsed_ms < 10 else f"{elapsed_ms:,.0f} ms"


def _words(slug: str) -> str:
    return slug.replace("_", " ")
