"""Hosted models against a provider that misbehaves: one request a call, and every failure under its right name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import SecretStr

from retold.contracts.stages import EMPTY_PROFILE
from retold.models.hosted import HostedCompletion, HostedModelSettings, HostedServingModel
from retold.policy.ports import Generation, MalformedReplyError, Message, RefusedByProviderError
from retold.policy.reference import ReferenceGapPlanner
from retold.policy.reference.planner import SCHEMA
from tests.unit.models import provider as answers
from tests.unit.models.provider import Provider

GENEROUS_S = 20.0
MESSAGES = (Message(role="system", content="Be brief."), Message(role="user", content="When is it?"))
PLAN = '{"gaps": [{"category": "preference", "query": "seat preference"}]}'


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with answers.running() as running:
        yield running


def openai(provider: Provider, **changes: object) -> HostedModelSettings:
    fields = {"provider": "openai", "model": "m", "base_url": provider.url + "/v1", "api_key": SecretStr("k")}
    return HostedModelSettings.model_validate(fields | changes)


def anthropic(provider: Provider, **changes: object) -> HostedModelSettings:
    fields = {"provider": "anthropic", "model": "claude-x", "base_url": provider.url, "api_key": SecretStr("k")}
    return HostedModelSettings.model_validate(fields | changes)


async def serve(settings: HostedModelSettings) -> Generation:
    async with HostedServingModel(settings) as model:
        return await asyncio.wait_for(model.generate(MESSAGES), GENEROUS_S)


async def complete(settings: HostedModelSettings) -> Generation:
    completion = HostedCompletion(settings)
    try:
        return await asyncio.wait_for(completion.complete(MESSAGES, SCHEMA), GENEROUS_S)
    finally:
        await completion.aclose()


async def test_an_openai_compatible_endpoint_answers_with_the_callers_settings(provider: Provider) -> None:
    provider.reply = answers.chat("On 4 March.")
    answer = await serve(openai(provider, max_tokens=77, temperature=0.5))
    assert answer == Generation(
        text="On 4 March.", model="openai/m-2026", prompt_tokens=11, completion_tokens=7, finish_reason="stop"
    )
    [sent] = provider.requests
    assert provider.paths == ["/v1/chat/completions"]
    assert sent["messages"] == [message.model_dump() for message in MESSAGES]
    assert (sent["model"], sent["temperature"]) == ("m", 0.5)
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))


@pytest.mark.parametrize("served, named", [("m-2026-01", "m-2026-01"), ("org/m", "org/m"), ("/srv/m.gguf", "m")])
async def test_the_model_that_answered_is_named_but_no_path_of_its_machine(
    provider: Provider, served: str, named: str
) -> None:
    provider.reply = answers.chat("Yes.", model=served)
    assert (await serve(openai(provider))).model == f"openai/{named}"


async def test_anthropic_answers_too(provider: Provider) -> None:
    provider.reply = answers.claude({"type": "text", "text": "On 4 March."})
    answer = await serve(anthropic(provider))
    assert answer == Generation(
        text="On 4 March.", model="anthropic/claude-x", prompt_tokens=11, completion_tokens=7, finish_reason="stop"
    )
    [sent] = provider.requests
    assert provider.paths[0].startswith("/v1/messages")
    assert "Be brief." in json.dumps(sent["system"])
    assert "When is it?" in json.dumps(sent["messages"])


@pytest.mark.parametrize("structured", ["auto", "schema", "tool", "text"])
async def test_the_schema_reaches_the_provider_in_the_way_it_understands(provider: Provider, structured: str) -> None:
    provider.reply = answers.called("gap_plan", PLAN) if structured == "tool" else answers.chat(PLAN)
    assert (await complete(openai(provider, structured=structured))).text == PLAN
    [sent] = provider.requests
    as_schema = sent.get("response_format", {}).get("json_schema", {}).get("schema", {}).get("required")
    as_tool = [tool["function"]["parameters"]["required"] for tool in sent.get("tools", ())]
    expected = {
        "auto": (["gaps"], []),
        "schema": (["gaps"], []),
        "tool": (None, [["gaps"]]),
        "text": (None, []),
    }
    assert (as_schema, as_tool) == expected[structured]


async def test_anthropic_is_made_to_call_a_tool(provider: Provider) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "gap_plan", "input": json.loads(PLAN)}
    provider.reply = answers.claude({"type": "text", "text": "Let me see."}, call, stop="tool_use")
    assert json.loads((await complete(anthropic(provider))).text) == json.loads(PLAN)
    [sent] = provider.requests
    assert [tool["name"] for tool in sent["tools"]] == ["gap_plan"]


async def test_two_tool_calls_reach_the_reader_as_two_objects(provider: Provider) -> None:
    provider.reply = answers.called("gap_plan", PLAN, '{"gaps": []}')
    text = (await complete(openai(provider, structured="tool"))).text
    assert [json.loads(line) for line in text.splitlines()] == [json.loads(PLAN), {"gaps": []}]


REFUSALS: dict[str, bytes] = {
    "401": answers.failure(401, "invalid_api_key", "Incorrect API key"),
    "403": answers.failure(403, "forbidden", "Not for you"),
    "429": answers.failure(429, "rate_limit_exceeded", "Slow down", {"retry-after": "1"}),
    "quota": answers.failure(429, "insufficient_quota", "You exceeded your current quota"),
    "402": answers.failure(402, "billing", "Pay first"),
    "policy": answers.failure(400, "content_policy_violation", "Rejected by our safety system"),
    "azure": answers.failure(400, "content_filter", "The response was filtered"),
    "filtered": answers.chat("", finish="content_filter"),
    "refusal": answers.chat(None, refusal="I can't help with that."),
}


@pytest.mark.parametrize("call", [serve, complete])
@pytest.mark.parametrize("case", REFUSALS)
async def test_a_provider_that_declines_is_a_refusal_after_one_request(
    provider: Provider, case: str, call: Callable[..., object]
) -> None:
    provider.reply = REFUSALS[case]
    with pytest.raises(RefusedByProviderError):
        await call(openai(provider))  # type: ignore[misc]
    assert len(provider.requests) == 1


ANTHROPIC_REFUSALS: dict[str, bytes] = {
    "401": answers.http(401, '{"type":"error","error":{"type":"authentication_error","message":"bad key"}}'),
    "429": answers.http(429, '{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'),
    "credit": answers.http(
        400,
        '{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}',
    ),
    "refusal": answers.claude(stop="refusal"),
}


@pytest.mark.parametrize("case", ANTHROPIC_REFUSALS)
async def test_so_is_it_with_anthropic(provider: Provider, case: str) -> None:
    provider.reply = ANTHROPIC_REFUSALS[case]
    with pytest.raises(RefusedByProviderError):
        await serve(anthropic(provider))
    assert len(provider.requests) == 1


FAILURES: dict[str, bytes] = {
    "500": answers.failure(500, "server_error", "Oops"),
    "503": answers.failure(503, "unavailable", "Later", {"retry-after": "1"}),
    "529": answers.failure(529, "overloaded_error", "Busy"),
    "404": answers.failure(404, "model_not_found", "No such model"),
    "400": answers.failure(400, "invalid_request_error", "Unknown field"),
    "no JSON": answers.http(200, "<html>Bad gateway</html>"),
    "half JSON": answers.http(200, '{"id": "c1", "choices": [{"mess'),
    "other JSON": answers.http(200, '{"hello": "world"}'),
    "no choices": answers.http(200, '{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[]}'),
    "no HTTP": b"\x00\x01garbage\r\n\r\n",
}


@pytest.mark.parametrize("call", [serve, complete])
@pytest.mark.parametrize("case", FAILURES)
async def test_a_provider_that_fails_is_an_error_of_its_own_kind_after_one_request(
    provider: Provider, case: str, call: Callable[..., object]
) -> None:
    provider.reply = FAILURES[case]
    with pytest.raises(Exception) as caught:
        await call(openai(provider))  # type: ignore[misc]
    assert not isinstance(caught.value, RefusedByProviderError | MalformedReplyError | TimeoutError)
    assert len(provider.requests) == 1


async def test_a_reset_connection_is_an_error_and_not_tried_again(provider: Provider) -> None:
    provider.reset = True
    with pytest.raises(Exception) as caught:
        await serve(openai(provider))
    assert type(caught.value).__name__ == "ModelConnectionError"
    assert len(provider.requests) == 1


@pytest.mark.parametrize("text", ["", "  \n", None])
@pytest.mark.parametrize("call", [serve, complete])
async def test_an_empty_answer_is_malformed(provider: Provider, text: str | None, call: Callable[..., object]) -> None:
    provider.reply = answers.chat(text)
    with pytest.raises(MalformedReplyError):
        await call(openai(provider))  # type: ignore[misc]
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "written, answered",
    [
        ("<think>Hm, the dentist.</think>\n\nOn 4 March.", "On 4 March."),
        ("Use <think> tags for that.", "Use <think> tags for that."),
    ],
)
async def test_an_answer_comes_without_the_thinking_before_it(provider: Provider, written: str, answered: str) -> None:
    provider.reply = answers.chat(written)
    assert (await serve(openai(provider))).text == answered


async def test_thinking_that_never_ends_is_no_answer(provider: Provider) -> None:
    provider.reply = answers.chat("<think>Hm, the dentist. Let me think about")
    with pytest.raises(MalformedReplyError):
        await serve(openai(provider))


@pytest.mark.parametrize("text", [PLAN, PLAN[:-4]])
async def test_a_decision_cut_off_at_the_token_limit_is_malformed_even_if_it_reads_well(
    provider: Provider, text: str
) -> None:
    provider.reply = answers.chat(text, finish="length")
    with pytest.raises(MalformedReplyError, match="max_tokens"):
        await complete(openai(provider))
    assert len(provider.requests) == 1


@pytest.mark.parametrize("drip_s", [None, 0.05])
@pytest.mark.parametrize("settings", [openai, anthropic])
async def test_cancelling_returns_at_once_and_closes_the_connection(
    provider: Provider, settings: Callable[[Provider], HostedModelSettings], drip_s: float | None
) -> None:
    provider.reply = answers.chat("slow") if drip_s else None
    provider.drip_s = drip_s
    async with HostedServingModel(settings(provider)) as model:
        call = asyncio.create_task(model.generate(MESSAGES))
        async with asyncio.timeout(GENEROUS_S):
            await provider.received.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await provider.hung_up.wait()
    assert len(provider.requests) == 1


WRAPPED: dict[str, str] = {
    "prose": f"Sure! Here is my {{decision}}:\n{PLAN}\nHope that helps.",
    "fence": f"```json\n{PLAN}\n```",
    "thinking": f'<think>Perhaps {{"gaps": []}}? No.</think>\n{PLAN}',
    "said twice": f"{PLAN}\n\n{PLAN}",
}


@pytest.mark.parametrize("case", WRAPPED)
async def test_a_planner_reads_one_decision_whatever_surrounds_it(provider: Provider, case: str) -> None:
    provider.reply = answers.chat(WRAPPED[case])
    decision = await ReferenceGapPlanner(HostedCompletion(openai(provider))).plan("Book it.", None, EMPTY_PROFILE, ())
    assert [(gap.category, gap.query) for gap in decision.gaps] == [("preference", "seat preference")]
    assert (decision.usage[0].model, decision.usage[0].prompt_tokens) == ("openai/m-2026", 11)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("text", [PLAN + '\n{"gaps": []}', PLAN[:-4], "I would not search.", "<think>" + PLAN])
async def test_a_planner_fails_closed_after_one_request(provider: Provider, text: str) -> None:
    provider.reply = answers.chat(text)
    with pytest.raises(MalformedReplyError):
        await ReferenceGapPlanner(HostedCompletion(openai(provider))).plan("Book it.", None, EMPTY_PROFILE, ())
    assert len(provider.requests) == 1


@pytest.mark.parametrize("variable, name", [("OPENAI_API_KEY", "openai"), ("ANTHROPIC_API_KEY", "anthropic")])
def test_a_missing_key_is_named_before_any_request(monkeypatch: pytest.MonkeyPatch, variable: str, name: str) -> None:
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    with pytest.raises(ValueError, match=f"api_key: no key for provider '{name}'"):
        HostedServingModel(HostedModelSettings.model_validate({"provider": name, "model": "m"}))


def test_a_key_never_shows() -> None:
    settings = HostedModelSettings.model_validate({"provider": "openai", "model": "m", "api_key": "top-secret"})
    assert "top-secret" not in repr(settings) + str(settings) + settings.model_dump_json()
