"""What counts as somebody's text, and what is left of a decision or an audit event without it."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retold.contracts.identity import (
    OPERATION_KINDS,
    operation_workflow_id,
    principal_prefixes,
    session_prefix,
    turn_workflow_id,
)
from retold.contracts.stages import GapCategory, ProposedGap
from retold.contracts.turn import Principal
from retold.policy.forgetting import GONE, Probes, without_texts, without_words
from retold.policy.ports import GapDecision
from retold.policy.replay import replay
from tests.cases import CASES, SERVED, Case
from tests.scripted import Step, scripted
from tests.unit.test_turn_in_process import play

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=128).filter(
    lambda name: bool(name.strip())
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=60).filter(
    lambda text: bool(text.strip()) and len(text.encode()) >= 12
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_decision_without_its_texts_replays_to_the_same_outcome(case: Case) -> None:
    stack = scripted(case.script)
    await play(stack)
    kept = without_texts(stack.decision)
    assert await replay(kept) == (case.disposition, case.reason)
    assert without_texts(kept) == kept
    texts = {gap.query for gap in stack.decision.gaps}
    assert not any(text in kept.model_dump_json() for text in texts)


async def test_repeats_blanks_and_what_is_too_long_stay_what_they_are() -> None:
    """What the rules make of a plan depends on its texts; without them they must make the same of it."""
    wrote = ["Her Diet", "her diet ", " ", "x" * 401, "allergies"]
    gaps = tuple(ProposedGap(category=GapCategory.PREFERENCE, query=query) for query in wrote)
    unknown = ProposedGap(category="secret hopes", query="what she hopes for")
    stack = scripted(SERVED.but(plan=Step(GapDecision(gaps=(*gaps, unknown)))))
    await play(stack)
    kept = without_texts(stack.decision)
    assert (len(kept.gaps), kept.gaps_dropped) == (len(stack.decision.gaps), stack.decision.gaps_dropped)
    assert await replay(kept) == (stack.decision.disposition, stack.decision.reason)
    assert not {"hopes", "Diet", "allergies", "xxx"} & set(kept.model_dump_json().replace('"', " ").split())


@given(texts, st.sampled_from([True, False]), st.integers(0, 2))
def test_a_text_is_found_however_json_spells_it(text: str, ascii_only: bool, depth: int) -> None:
    assume(text in Probes([text]).texts)  # a code such as `infrastructure` is nobody's words
    value: object = f"before {text} after"
    probes = Probes([text])
    assert probes.within({"a": [value]}) == {text}
    written = json.dumps({"said": value}, ensure_ascii=ascii_only)
    assert probes.within_json(written.encode())
    if depth == 1:  # JSON inside a string of JSON, as an error message or a log line may have it
        assert probes.within(written) == {text}


def test_short_texts_are_found_only_where_they_are_all_that_is_said() -> None:
    probes = Probes(["ja", "東京タワーへ", "  ", "confirmed", GONE])
    assert probes.texts == {"ja", "東京タワーへ"}, "blanks and words of our own vocabularies are no texts to look for"
    assert probes.within("ja") == {"ja"}
    assert probes.within("jam", "Benjamin", {"ja": 1}) == set()
    assert probes.within("昨日は東京タワーへ行った") == {"東京タワーへ"}, "six characters, but eighteen bytes"
    assert probes.within_json(b'{"text":"ja"}')
    assert not probes.within_json(b'{"text":"jam"}')


def test_an_audit_event_keeps_its_states_and_loses_its_words() -> None:
    event = {
        "status": "confirmed", "version": 3, "ambient": False, "until": None, "attribute": "favourite doctor",
        "record": "0b8e9b2e-3f0f-4a06-9b43-6b7d6b0a2b11", "turns": [1, "she said so"], "score": 0.25,
    }  # fmt: skip
    assert without_words(event) == {**event, "attribute": GONE, "turns": [1, GONE]}
    assert without_words(None) is None


@given(names, names, names, names, names)
def test_a_principals_executions_begin_as_nobody_elses_do(
    tenant: str, user: str, other_user: str, session: str, turn: str
) -> None:
    one, other = Principal(tenant=tenant, user=user), Principal(tenant=tenant, user=other_user)
    for id in (turn_workflow_id(one, session, turn), *(operation_workflow_id(k, one, turn) for k in OPERATION_KINDS)):
        assert id.startswith(principal_prefixes(one))
        assert id.startswith(principal_prefixes(other)) is (one == other)
        assert len(id) <= 700
        assert not set(id) & set("'\"\\ ")
    id = turn_workflow_id(one, session, turn)
    assert id.startswith("turn-sha256/") or id.startswith(session_prefix(one, session))


def test_an_operation_of_an_unknown_kind_has_no_id() -> None:
    with pytest.raises(ValueError, match="OPERATION_KINDS"):
        operation_workflow_id("novel", Principal(tenant="a", user="b"), "1")
