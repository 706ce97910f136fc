"""The demo's first act: something said in passing becomes a standing instruction, from the next session on.

What is said is read, found again in the user's own words, judged, and promoted or sent to a person, who approves it by
a signed decision. The session it was said in keeps its profile to the end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from retold.cli.activation import activation_lines
from retold.cli.embedded import EmbeddedStack
from retold.cli.output import readable
from retold.client import Host, Reviews, TurnResult
from retold.contracts.activation import ActivationCategory, ActivationOutcome
from retold.contracts.record import Activation, RecordRef
from retold.contracts.review import Resolution, Review, ReviewerRole, ReviewFilter, ReviewOutcome
from retold.contracts.turn import Principal
from retold.policy.limits import utc_now

WITHIN_S = 30


@dataclass(frozen=True)
class Lesson:
    """What is said, in which session, and what is asked afterwards."""

    session_id: str
    next_session_id: str
    turns: Sequence[tuple[str, str]]
    """Turn ids and texts."""
    question: str

    @classmethod
    def read(cls, folder: Path) -> Lesson:
        lesson = json.loads((folder / "learning.json").read_text())
        turns = [(turn["turn_id"], turn["text"]) for turn in lesson["turns"]]
        return cls(lesson["session_id"], lesson["next_session_id"], turns, lesson["question"])


async def learn(stack: EmbeddedStack, principal: Principal, lesson: Lesson, console: Console) -> list[str]:
    """Play it; what was not as it should be."""
    console.rule("what was said in passing")
    act = _Act(stack, principal, console)
    before: Sequence[RecordRef] = ()
    for turn_id, text in lesson.turns:
        before = await act.said(lesson.session_id, turn_id, text)
    await act.read(lesson.session_id)
    reviewed = await act.decide_what_waits()
    always_on = await act.always_on()
    within = await act.said(lesson.session_id, "learn-after", lesson.question)
    after = await act.said(lesson.next_session_id, "learn-next", lesson.question)
    expected = {
        "nothing was promoted by itself": len(always_on) > reviewed,
        "nothing was approved by a person": reviewed > 0,
        "the session it was said in has another profile": within == before,
        "the next session does not know it": {ref.id for ref in after} == always_on,
    }
    act.say(f"in this session's profile: {len(within)} instructions; in the next one's: {len(after)}\n", "green")
    return [f"learning: {what}" for what, holds in expected.items() if not holds]


@dataclass(frozen=True)
class _Act:
    stack: EmbeddedStack
    principal: Principal
    console: Console

    def say(self, text: str, style: str = "dim") -> None:
        self.console.print(readable(self.console, text), style=style, markup=False)

    async def said(self, session_id: str, turn_id: str, text: str) -> Sequence[RecordRef]:
        """One turn, without memory's help: it is about the profile, which it has. The records in that."""
        host = Host(self.stack.client, task_queue=self.stack.settings.worker.turns_queue)
        result = await host.turn(self.principal, session_id, turn_id, text, budget_ms=0)
        assert isinstance(result, TurnResult), "the demo has no fallback"
        self.say(f"{session_id}  “{text}”", "")
        async with asyncio.timeout(WITHIN_S):
            while (decision := await self.stack.adapters.store.decision(result.decision_id)) is None:
                await asyncio.sleep(0.05)
        return decision.profile_records

    async def read(self, session_id: str) -> None:
        """As `retold sessions extract` does."""
        host = Host(self.stack.client, operations_queue=self.stack.settings.worker.operations_queue)
        report = await host.read_session(self.principal, session_id)
        self.say(f"\nread {report.turns_read} turns, {len(report.written)} statements are remembered:")
        for ref in report.written:
            view = await self.stack.adapters.store.activations.view(self.principal, ref.id)
            for label, value in activation_lines(view):
                self.say(f"  {label:<10} {value}")
            self.say("")

    async def decide_what_waits(self) -> int:
        """A reviewer approves what policy did not want to decide, by the command's own way; how many items."""
        desk = self.stack.adapters.store.reviews
        page = await desk.page(ReviewFilter(tenants=(self.principal.tenant,)))
        items = [item for item in page.items if isinstance(item, Review)]
        if not items:
            return 0
        _, token = await self.stack.adapters.store.reviewers.register(
            "demo-reviewer", "The demo's reviewer", ReviewerRole.REVIEWER, actor="retold demo", at=utc_now()
        )
        for item in items:
            outcome = await self._approve(item, token)
            self.say(f"review {item.review_id}, {item.reason.value.replace('_', ' ')}: {outcome.status.value}", "green")
        return len(items)

    async def _approve(self, item: Review, token: str) -> ReviewOutcome:
        reviews = Reviews(self.stack.client, task_queue=self.stack.settings.worker.lifecycle_queue)
        unnamed = item.proposed is not ActivationOutcome.PROMOTE and item.category in (None, ActivationCategory.OTHER)
        return await reviews.resolve(
            item.review_id,
            Resolution.PROMOTE,
            expected_version=item.version,
            reason="said plainly enough",
            token=token,
            category=ActivationCategory.ANSWER_STYLE if unnamed else None,
        )

    async def always_on(self) -> set[str]:
        records = await self.stack.adapters.store.records(self.principal)
        return {record.id for record in records if record.activation is Activation.AMBIENT}
