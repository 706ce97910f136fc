"""Names that cannot be confused, requests that say what they refuse, and a client that survives Temporal's absence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from retold.client import FallbackResult, InvalidTurnError, UnreachableError, connect
from retold.contracts.identity import decision_id, request_digest, session_key, turn_ref, turn_workflow_id
from retold.contracts.refusal import NO_NAME, refusal_text
from retold.contracts.turn import Durability, HostGeneration, Principal, TurnOptions, TurnRequest
from tests.scripted import ANNA

ANY_CHARACTER = st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00")
NAMES = st.text(ANY_CHARACTER, min_size=1, max_size=128).filter(lambda name: bool(name.strip()))
IDENTITIES = st.tuples(NAMES, NAMES, NAMES, NAMES)


def workflow_id(names: tuple[str, str, str, str]) -> str:
    tenant, user, session, turn = names
    return turn_workflow_id(Principal(tenant=tenant, user=user), session, turn)


@given(IDENTITIES, IDENTITIES)
def test_different_names_have_different_ids_and_every_id_fits_temporal(
    one: tuple[str, str, str, str], other: tuple[str, str, str, str]
) -> None:
    assert (workflow_id(one) == workflow_id(other)) == (one == other)
    assert len(workflow_id(one).encode()) <= 1_000
    assert (decision_id(workflow_id(one)) == decision_id(workflow_id(other))) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a/b", "c", "s", "t"), ("a", "b/c", "s", "t")),
        (("a%2Fb", "c", "s", "t"), ("a/b", "c", "s", "t")),
        (("a", "b", "s/t", "u"), ("a", "b", "s", "t/u")),
        (("a", "b", "s", "t"), ("a", "b", "s", "t ")),
        (("\u00e9", "b", "s", "t"), ("e\u0301", "b", "s", "t")),
        (("x" * 128, "y" * 128, "🦊" * 128, "t"), ("x" * 128, "y" * 128, "🦊" * 127 + "🐻", "t")),
    ],
)
def test_names_that_look_alike_stay_apart(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> None:
    assert workflow_id(one) != workflow_id(other)


def test_sessions_turns_and_texts_have_ids_of_their_own_kind() -> None:
    assert session_key(ANNA, "s1").startswith("session/")
    assert turn_ref(ANNA, "s1", "t1", "user") != turn_ref(ANNA, "s1", "t1", "draft")


@pytest.mark.parametrize("changed", [{"text": "other"}, {"public_context": "c"}, {"turn_id": "t2"}])
def test_the_digest_tells_what_was_said_and_not_how_fast_it_was_wanted(changed: dict[str, object]) -> None:
    request = TurnRequest(principal=ANNA, session_id="s1", turn_id="t1", text="hello")
    assert request_digest(request) != request_digest(request.model_copy(update=changed))
    hurried = request.model_copy(update={"options": TurnOptions(latency_budget_ms=5)})
    assert request_digest(request) == request_digest(hurried)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"principal": {"tenant": " ", "user": "anna"}}, "principal.tenant"),
        ({"principal": {"tenant": "acme", "user": ""}}, "principal.user"),
        ({"session_id": "\u2003"}, "session_id"),
        ({"turn_id": None}, "turn_id"),
        ({"text": "x" * 32_001}, "text"),
        ({"text": "\udc00"}, "text"),
        ({"options": {"latency_budget_ms": -1}}, "options.latency_budget_ms"),
        ({"options": {"latency_budget_ms": 99.5}}, "options.latency_budget_ms"),
        ({"options": {"latency_budget_ms": True}}, "options.latency_budget_ms"),
        ({"options": {"latency_budget_ms": "150"}}, "options.latency_budget_ms"),
        ({"options": {"latency_budget_ms": 600_001}}, "options.latency_budget_ms"),
        ({"options": {"durability": "maybe"}}, "options.durability"),
        ({"activation": "ambient"}, "activation"),
    ],
)
def test_a_refusal_names_its_field(fields: dict[str, object], said: str) -> None:
    request = {"principal": ANNA.model_dump(), "session_id": "s1", "turn_id": "t1", "text": "hello", **fields}
    with pytest.raises(ValidationError) as refused:
        TurnRequest.model_validate(request)
    assert said in {".".join(str(part) for part in error["loc"]) for error in refused.value.errors()}


def test_a_refusal_repeats_nothing_that_only_its_sender_could_have_written() -> None:
    sent = {
        "mode": 1,
        "My wife is called Berta": 2,
        "x" * 100: 3,
        "nul\x00": 4,
        **{f"k{at}": at for at in range(5_000)},
    }
    with pytest.raises(ValidationError) as refused:
        Principal.model_validate({"tenant": "a", "user": "b", **sent})
    said = refusal_text(refused.value)
    assert "mode: Extra inputs are not permitted" in said
    assert said.count(f"{NO_NAME}: Extra inputs are not permitted") == 3
    assert not any(word in said for word in ("Berta", "xxx", "\x00"))
    assert said.endswith("and 4984 more") and len(said) < 2_000


def test_a_host_that_generates_itself_cannot_ask_for_durability_turn() -> None:
    with pytest.raises(ValidationError, match="run in `stage`"):
        TurnOptions(durability=Durability.TURN, host_generation=HostGeneration(task_queue="mine"))


async def test_temporal_out_of_reach_is_a_typed_error_or_the_hosts_own_fallback() -> None:
    nowhere = "127.0.0.1:1"
    async with connect(address=nowhere, reach_timeout_ms=300) as host:
        with pytest.raises(UnreachableError, match="out of reach"):
            await host.turn(ANNA, "s1", "t1", "hello")

    async def plain_model(request: TurnRequest) -> str:
        return f"no memory today: {request.text}"

    async with connect(address=nowhere, reach_timeout_ms=300, fallback=plain_model) as host:
        answered = await host.turn(ANNA, "s1", "t1", "hello")
        assert isinstance(answered, FallbackResult)
        assert answered.answer == "no memory today: hello"


async def test_ending_a_session_without_temporal_is_a_typed_error() -> None:
    async with connect(address="127.0.0.1:1", reach_timeout_ms=300) as host:
        with pytest.raises(UnreachableError, match="out of reach"):
            await host.end_session(ANNA, "s1")
        with pytest.raises(InvalidTurnError, match="session_id"):
            await host.end_session(ANNA, " ")
