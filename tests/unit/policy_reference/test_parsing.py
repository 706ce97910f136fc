"""Replies as models really write them: one decision is read, anything doubtful is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.policy.ports import MalformedReplyError
from retold.policy.reference.judge import SCHEMA as ADMISSION_SCHEMA
from retold.policy.reference.judge import Judgement
from retold.policy.reference.parsing import ANSWER_MAX_CHARS, read_decision
from retold.policy.reference.planner import SCHEMA as PLAN_SCHEMA
from retold.policy.reference.planner import Plan

VERDICTS = '[{"id": "r1", "verdict": "helpful"}, {"id": "r2", "verdict": "redundant"}]'
GOOD = '{"admitted": ["r1"], "verdicts": ' + VERDICTS + "}"
EMPTY = '{"admitted": [], "verdicts": ' + VERDICTS.replace("helpful", "insufficient") + "}"

READABLE = {
    "bare": GOOD,
    "whitespace": f"\n\n  {GOOD}\n",
    "prose around": f"Here is my judgement: {GOOD} Let me know!",
    "braces in the prose": f"For the set {{r1, r2}} I {{think}} this: {GOOD} (see {{above}})",
    "fence": f"```json\n{GOOD}\n```",
    "fence without a language": f"```\n{GOOD}\n```",
    "think block": f"<think>\nMaybe {EMPTY}? No.\n</think>\n{GOOD}",
    "think block without its opening tag": f"Maybe {EMPTY}? No.\n</think>\n{GOOD}",
    "long thinking": "<think>" + "{hm " * 20_000 + f"</think>{GOOD}",
    "two think blocks": f"<think>a</think><think>{EMPTY}</think>{GOOD}",
    "said twice": f"{GOOD}\nAs JSON:\n```json\n{json.dumps(json.loads(GOOD), indent=2)}\n```",
    "beside an object of another kind": f'{{"note": "thinking"}}\n{GOOD}',
    "a reason added": GOOD[:-1] + ', "reason": "it names the hour"}',
}

MALFORMED = {
    "empty": ("", "empty"),
    "blank": (" \n\t", "empty"),
    "prose": ("I would admit r1.", "no_valid_object"),
    "cut off": (GOOD[:-1], "no_valid_object"),
    "cut off in a fence": (f"```json\n{GOOD[:60]}", "no_valid_object"),
    "two that differ": (f"{EMPTY}\nOn second thought:\n{GOOD}", "several_objects"),
    "think block without an end": (f"<think>{GOOD}", "no_valid_object"),
    "think block and nothing": (f"<think>{GOOD}</think>", "no_valid_object"),
    "array of verdicts": (VERDICTS, "no_valid_object"),
    "array of ids": ('["r1"]', "no_valid_object"),
    "wrapped in another object": (f'{{"result": {GOOD}}}', "no_valid_object"),
    "quoted in another object": (json.dumps({"answer": GOOD}), "no_valid_object"),
    "schema echoed": (json.dumps(ADMISSION_SCHEMA.json_schema), "no_valid_object"),
    "keys renamed": (GOOD.replace("admitted", "admit"), "no_valid_object"),
    "a key twice": ('{"admitted": ["r1"], "admitted": [], "verdicts": []}', "no_valid_object"),
    "verdicts as a map": ('{"admitted": ["r1"], "verdicts": {"r1": "helpful"}}', "no_valid_object"),
    "numbers for ids": ('{"admitted": [1], "verdicts": [{"id": 1, "verdict": "helpful"}]}', "no_valid_object"),
    "null for the list": ('{"admitted": null, "verdicts": []}', "no_valid_object"),
    "one id instead of a list": ('{"admitted": "r1", "verdicts": []}', "no_valid_object"),
    "single quotes": (GOOD.replace('"', "'"), "no_valid_object"),
    "not a number": ('{"admitted": [], "verdicts": [], "score": NaN}', "no_valid_object"),
    "half a character": ('{"admitted": ["\\ud800"], "verdicts": []}', "no_valid_object"),
    "nested without end": ('{"a":' * 3_000, "too_many_braces"),
    "braces, then a decision": ("{" * 200 + GOOD, "too_many_braces"),
    "a runaway": ("{" * (ANSWER_MAX_CHARS + 1), "too_long"),
}


@pytest.mark.parametrize("case", READABLE)
def test_the_one_decision_is_read(case: str) -> None:
    judgement = read_decision(READABLE[case], Judgement)
    assert judgement.admitted == ["r1"]
    assert [(one.id, one.verdict) for one in judgement.verdicts] == [("r1", "helpful"), ("r2", "redundant")]


@pytest.mark.parametrize("case", MALFORMED)
def test_anything_doubtful_is_malformed_and_says_why_without_quoting_it(case: str) -> None:
    reply, code = MALFORMED[case]
    with pytest.raises(MalformedReplyError) as caught:
        read_decision(reply, Judgement)
    assert str(caught.value) == code


def test_strings_nobody_knows_pass_through_for_the_rules_to_judge() -> None:
    plan = read_decision('{"gaps": [{"category": "star_sign", "query": ""}]}', Plan)
    assert [(gap.category, gap.query) for gap in plan.gaps] == [("star_sign", "")]


def test_an_empty_plan_is_a_decision_and_an_echoed_schema_is_none() -> None:
    assert read_decision('{"gaps": []}', Plan).gaps == []
    with pytest.raises(MalformedReplyError):
        read_decision(json.dumps(PLAN_SCHEMA.json_schema), Plan)


@given(cut=st.integers(min_value=0, max_value=len(GOOD) - 1))
def test_no_prefix_of_a_decision_is_a_decision(cut: int) -> None:
    with pytest.raises(MalformedReplyError):
        read_decision(GOOD[:cut], Judgement)


@given(before=st.text(max_size=80), after=st.text(max_size=80))
def test_text_around_it_changes_no_decision(before: str, after: str) -> None:
    """Whatever surrounds a decision, the reader returns that decision or refuses; it never makes up another."""
    try:
        judgement = read_decision(before + GOOD + after, Judgement)
    except MalformedReplyError:
        return
    assert judgement == read_decision(GOOD, Judgement)
