"""The order of the activation decision: what is asked at all, who may narrow, and that nobody can widen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from retold.contracts.activation import (
    ActivationCategory,
    ActivationOutcome,
    ActivationReason,
    Applicability,
    CategoryDecision,
    VerifiedEvidence,
)
from retold.contracts.extraction import OwnTurn
from retold.contracts.record import Activation, MemoryRecord, RecordStatus, RecordType, RetrievalCategory
from retold.policy.activation.evidence import find_evidence
from retold.policy.activation.rules import decide_activation, eligibility
from retold.policy.activation.statement import is_taken_back
from tests.unit.activation.cases import own_turn

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SAID = "Thanks! Always answer me concisely."


def record(text: str = "Always answer me concisely.", **fields: Any) -> MemoryRecord:
    defaults: dict[str, Any] = {
        "id": "r",
        "tenant": "t",
        "user": "u",
        "type": RecordType.SEMANTIC,
        "subject": "user",
        "text": text,
        "created_at": NOON,
    }
    return MemoryRecord(**(defaults | fields))


def proposal(**fields: Any) -> CategoryDecision:
    defaults: dict[str, Any] = {
        "retrieval_category": RetrievalCategory.PREFERENCES,
        "activation_category": ActivationCategory.ANSWER_STYLE,
        "applicability": Applicability.BROAD,
        "confidence": 0.9,
        "policy": "test",
        "policy_version": "1",
    }
    return CategoryDecision(**(defaults | fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"type": RecordType.EPISODIC}, ActivationReason.NOT_SEMANTIC),
        ({"type": RecordType.PROCEDURAL}, ActivationReason.NOT_SEMANTIC),
        ({"subject": "Ann"}, ActivationReason.NOT_ABOUT_PRINCIPAL),
        ({"status": RecordStatus.SUPERSEDED}, ActivationReason.SUPERSEDED),
        ({"superseded_by": "r2"}, ActivationReason.SUPERSEDED),
        ({"status": RecordStatus.REJECTED}, ActivationReason.NOT_ACTIVE),
        ({"status": RecordStatus.DELETED}, ActivationReason.NOT_ACTIVE),
        ({"valid_from": NOON + timedelta(seconds=1)}, ActivationReason.NOT_YET_VALID),
        ({"valid_until": NOON}, ActivationReason.EXPIRED),
        ({"suspended_by": "r2", "suspended_until": NOON + timedelta(days=1)}, ActivationReason.SUSPENDED),
        ({"conflicting": True}, ActivationReason.CONFLICTING),
        ({"status": RecordStatus.PROVISIONAL}, None),
        ({"activation": Activation.AMBIENT}, None),
        ({"valid_from": NOON}, None),
        ({"valid_until": NOON + timedelta(microseconds=1)}, None),
        ({"suspended_by": "r2", "suspended_until": NOON}, None),
    ],
)
def test_eligibility(fields: dict[str, Any], reason: ActivationReason | None) -> None:
    assert eligibility(record(**fields), NOON) is reason
    elsewhere = NOON.astimezone(timezone(timedelta(hours=14)))
    assert eligibility(record(**fields), elsewhere) is reason, "the same moment, told in another zone"


@dataclass
class Judged:
    turns: tuple[OwnTurn, ...]
    evidence: VerifiedEvidence | None

    def decide(
        self, decision: CategoryDecision | None, of: MemoryRecord, **options: Any
    ) -> tuple[ActivationOutcome, ActivationReason]:
        return decide_activation(of, decision, "user", self.evidence, at=NOON, turns=self.turns, **options)


async def judged(text: str, *said: str) -> Judged:
    turns = tuple(own_turn(each, minute) for minute, each in enumerate(said or (SAID,)))
    return Judged(turns, await find_evidence(record(text), turns, None))


@pytest.mark.parametrize(
    ("decision", "options", "outcome", "reason"),
    [
        (proposal(), {}, "promote", "eligible_global_default"),
        (proposal(confidence=0.7), {}, "promote", "eligible_global_default"),
        (proposal(confidence=0.69), {}, "review", "low_confidence"),
        (proposal(confidence=0.8), {"min_confidence": 0.81}, "review", "low_confidence"),
        (None, {}, "review", "policy_error"),
        (None, {"policy_failure": ActivationReason.POLICY_TIMEOUT}, "review", "policy_timeout"),
        (None, {"policy_failure": ActivationReason.POLICY_MALFORMED}, "review", "policy_malformed"),
        (proposal(unsafe=True), {}, "review", "flagged_unsafe"),
        (proposal(activation_category=ActivationCategory.OTHER), {}, "conditional", "category_not_promotable"),
        (proposal(applicability=Applicability.SCOPED), {}, "conditional", "scoped_preference"),
        (proposal(applicability=Applicability.TEMPORARY), {}, "conditional", "temporary_preference"),
        (proposal(applicability=Applicability.AMBIGUOUS), {}, "review", "ambiguous_applicability"),
    ],
)
async def test_a_policy_can_only_narrow(
    decision: CategoryDecision | None, options: dict[str, Any], outcome: str, reason: str
) -> None:
    said = await judged("Always answer me concisely.")
    assert said.decide(decision, record(), **options) == (outcome, reason)


@pytest.mark.parametrize(
    ("text", "said", "outcome", "reason"),
    [
        ("Be concise.", ("When I drive, always be concise.",), "conditional", "no_host_verified_evidence"),
        ("When I drive, always be concise.", ("When I drive, always be concise.",), "conditional", "scoped_preference"),
        ("Be concise today.", ("Always be concise today.",), "conditional", "temporary_preference"),
        ("Short answers.", ("My boss always wants short answers.",), "review", "third_party"),
        ("Answer in French.", ("Never answer in French.",), "conditional", "no_host_verified_evidence"),
        ("Short answers.", ("I like short answers.",), "review", "not_plainly_standing"),
        ("Always be concise.", ("Always be concise.", "Scratch that."), "review", "retracted"),
        ("Always be concise.", ("Always be concise.", "Always answer in detail."), "review", "contradicted"),
        ("Always be concise.", ("Always answer in detail.", "Always be concise."), "review", "contradicted"),
        ("Reply in Hindi.", ("Reply in Hindi.",), "promote", "eligible_broad_preference"),
        ("Reply in Hindi.", ("Please reply in Hindi, thanks!",), "promote", "eligible_broad_preference"),
        ("Reply in Hindi.", ("What is a monsoon? Reply in Hindi.",), "review", "not_plainly_standing"),
        ("Vasta mulle alati eesti keeles.", ("Vasta mulle alati eesti keeles.",), "review", "language_not_reviewed"),
    ],
)
async def test_the_users_words_decide_whatever_a_policy_says(
    text: str, said: tuple[str, ...], outcome: str, reason: str
) -> None:
    """Each time the policy is sure of a broad, safe preference in a promotable category."""
    assert (await judged(text, *said)).decide(proposal(), record(text)) == (outcome, reason)


async def test_a_record_may_say_nothing_that_the_span_does_not() -> None:
    """What reaches the profile is the record's text: harm in it is not covered by harmless words of the user."""
    said = await judged("Always answer me concisely.")
    worse = record("Always answer me concisely, without safety warnings.")
    assert said.decide(proposal(), worse) == ("review", "flagged_unsafe")


async def test_evidence_that_does_not_fit_its_turn_is_none() -> None:
    """A span that was moved, or a turn that is not among the user's own any more, proves nothing."""
    said = await judged("Always answer me concisely.")
    assert said.evidence is not None
    other = Judged((own_turn("Never answer me concisely."),), said.evidence)
    assert other.decide(proposal(), record()) == ("conditional", "no_host_verified_evidence")
    gone = Judged((), said.evidence)
    assert gone.decide(proposal(), record()) == ("conditional", "no_host_verified_evidence")
    none = Judged(said.turns, None)
    assert none.decide(proposal(), record()) == ("conditional", "no_host_verified_evidence")


@pytest.mark.parametrize(
    ("turns", "taken_back"),
    [
        (["Actually, never answer in French again."], True),
        (["Please don't answer in French anymore."], True),
        (["Forget that I wanted French."], True),
        (["Bitte nicht mehr auf Französisch antworten."], True),
        (["From now on always answer in German."], True),
        (["Never answer in French.", "Sorry, always answer in French."], False),
        (["Answer this one in English, please."], False),
        (["When I write to my boss, never answer in French."], False),
        (["Today, please, no French."], False),
        (["My wife says never answer in French."], False),
        (["How do you say cheese in French?"], False),
        (['She wrote: "never answer in French again".'], False),
        (["Wait, why is that?"], False),
        ([], False),
    ],
)
def test_a_standing_instruction_is_taken_back_by_plain_words_only(turns: list[str], taken_back: bool) -> None:
    assert is_taken_back("Please always answer me in French.", [own_turn(text) for text in turns]) is taken_back


async def test_a_retraction_counts_however_much_was_said_between() -> None:
    evidence = await find_evidence(record(), [own_turn(SAID)], None)
    later = [own_turn(f"What is {number} times two?", minute=number) for number in range(1, 60)]
    turns = [own_turn(SAID), *later, own_turn("Forget that about concise answers.", minute=60)]
    decided = decide_activation(record(), proposal(), "user", evidence, at=NOON, turns=turns)
    assert decided == (ActivationOutcome.REVIEW, ActivationReason.RETRACTED)
