"""Hosted models over pydantic-ai: any OpenAI-compatible endpoint, and Anthropic. One HTTP request a call.

Nothing here retries or has a deadline: the stage that calls knows both, and cancelling a call closes its connection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import TracebackType
from typing import Annotated, Literal, Self

import anthropic
import openai
from pydantic import Field, SecretStr
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from retold.contracts._base import Contract
from retold.policy.ports import Generation, MalformedReplyError, Message, PromptStyle, RefusedByProviderError
from retold.policy.prompts import ChatPrompt
from retold.policy.reference.port import OutputSchema

# The longest stage timeout there can be. Only a caller without any limit ever meets it.
_BACKSTOP_S = 600.0

# The library splits think blocks out of a text, but takes a block that never ends for the answer. With tags that no
# model writes the text arrives whole, and `_without_thinking` and the decisions' reader split it themselves.
_AS_WRITTEN = ModelProfile(thinking_tags=("\x00think", "\x00/think"))

# How providers word a refusal that arrives as a plain 400.
_POLICY_WORDS = re.compile(
    r"content[ _]?(filter|policy|management)|moderation|usage polic|safety|flagged|billing|credit|quota", re.IGNORECASE
)


class HostedModelSettings(Contract):
    """Which model plays a role, and how it is reached. Each role has its own."""

    provider: Literal["openai", "anthropic"]
    """`openai`: the chat completions protocol, whoever serves it."""
    model: Annotated[str, Field(min_length=1, max_length=150)]
    base_url: str | None = None
    """None: the provider's own endpoint."""
    api_key: SecretStr | None = None
    """None: the provider's usual environment variable, or no key where `base_url` is set."""
    max_tokens: Annotated[int, Field(ge=1, le=32_000)] = 1_024
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    structured: Literal["auto", "schema", "tool", "text"] = "auto"
    """How a JSON answer is asked for: a response schema, a forced tool call, or words alone. `auto`: the first that
    the model is known to support. Some compatible servers refuse what they do not know; `text` always works."""


class HostedServingModel:
    """Answers the user through a hosted chat model."""

    def __init__(self, settings: HostedModelSettings, *, style: PromptStyle | None = None) -> None:
        self._endpoint = _Endpoint.connect(settings)
        self._style = style or ChatPrompt()

    @property
    def identity(self) -> str:
        return self._endpoint.identity

    @property
    def style(self) -> PromptStyle:
        return self._style

    async def generate(self, messages: Sequence[Message]) -> Generation:
        """Raises:
        MalformedReplyError: the model answered nothing.
        RefusedByProviderError: credentials, quota, rate limit or content policy.
        """
        response = await self._endpoint.request(messages, ModelRequestParameters())
        return self._endpoint.generation(response, _without_thinking(_text(response)))

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class HostedCompletion:
    """A hosted model behind the reference policies' port (`retold.policy.reference.port.StructuredCompletion`).

    The schema goes to the provider, which makes good models reliable; what comes back is returned as raw text and
    read by our own strict reader. pydantic-ai's typed output would do the reading too, but it answers a bad reply
    with a second request, and it refuses a valid object for the prose or the fence around it.
    """

    def __init__(self, settings: HostedModelSettings) -> None:
        self._endpoint = _Endpoint.connect(settings)
        self._structured = settings.structured

    @property
    def identity(self) -> str:
        return self._endpoint.identity

    async def complete(self, messages: Sequence[Message], schema: OutputSchema) -> Generation:
        """Raises:
        MalformedReplyError: the answer was empty, or cut off at `max_tokens`.
        RefusedByProviderError: credentials, quota, rate limit or content policy.
        """
        response = await self._endpoint.request(messages, self._parameters(schema))
        if response.finish_reason == "length":
            raise MalformedReplyError("the answer was cut off at max_tokens")
        return self._endpoint.generation(response, _called(response, schema.name) or _text(response))

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    def _parameters(self, schema: OutputSchema) -> ModelRequestParameters:
        structured = self._structured
        if structured == "auto":
            profile = self._endpoint.model.profile
            structured = "schema" if profile.get("supports_json_schema_output", False) else "tool"
        if structured == "schema":
            wanted = OutputObjectDefinition(
                json_schema=schema.json_schema, name=schema.name, description=schema.description, strict=True
            )
            return ModelRequestParameters(output_mode="native", output_object=wanted)
        if structured == "tool":
            tool = ToolDefinition(
                name=schema.name,
                description=schema.description,
                parameters_json_schema=schema.json_schema,
                kind="output",
            )
            return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
        return ModelRequestParameters()


@dataclass(frozen=True)
class _Endpoint:
    """A model of a provider, the client it is reached by, and what its failures mean to a stage."""

    model: Model
    provider: str
    name: str
    settings: ModelSettings
    client: openai.AsyncOpenAI | anthropic.AsyncAnthropic

    @classmethod
    def connect(cls, settings: HostedModelSettings) -> _Endpoint:
        """Build the client. No request is made.

        Raises:
            ValueError: there is no API key, neither in the settings nor in the environment.
        """
        key = settings.api_key.get_secret_value() if settings.api_key else None
        if key is None and settings.base_url is not None:
            # A server of one's own often wants none, and a key from the environment is not meant for it.
            key = "none"
        missing = f"api_key: no key for provider {settings.provider!r} and model {settings.model!r}"
        if settings.provider == "openai":
            try:
                client = openai.AsyncOpenAI(api_key=key, base_url=settings.base_url, max_retries=0, timeout=_BACKSTOP_S)
            except openai.OpenAIError as error:
                raise ValueError(missing) from error
            model: Model = OpenAIChatModel(
                settings.model, provider=OpenAIProvider(openai_client=client), profile=_AS_WRITTEN
            )
            return cls._over(model, client, settings)
        claude = anthropic.AsyncAnthropic(api_key=key, base_url=settings.base_url, max_retries=0, timeout=_BACKSTOP_S)
        if claude.api_key is None and claude.auth_token is None:
            raise ValueError(missing)
        model = AnthropicModel(settings.model, provider=AnthropicProvider(anthropic_client=claude))
        return cls._over(model, claude, settings)

    @classmethod
    def _over(
        cls, model: Model, client: openai.AsyncOpenAI | anthropic.AsyncAnthropic, settings: HostedModelSettings
    ) -> _Endpoint:
        return cls(
            model=model,
            provider=settings.provider,
            name=settings.model,
            settings=ModelSettings(max_tokens=settings.max_tokens, temperature=settings.temperature, max_retries=0),
            client=client,
        )

    @property
    def identity(self) -> str:
        return f"{self.provider}/{self.name}"

    async def request(self, messages: Sequence[Message], parameters: ModelRequestParameters) -> ModelResponse:
        with _refusals():
            response = await model_request(
                self.model,
                _conversation(messages),
                model_settings=self.settings,
                model_request_parameters=parameters,
                instrument=False,
            )
        if response.finish_reason == "content_filter":
            raise RefusedByProviderError("content_filter")
        return response

    def generation(self, response: ModelResponse, text: str) -> Generation:
        if not text.strip():
            raise MalformedReplyError("the model answered nothing")
        return Generation(
            text=text,
            model=f"{self.provider}/{self._served(response)}"[:200],
            prompt_tokens=response.usage.input_tokens,
            completion_tokens=response.usage.output_tokens,
            finish_reason=response.finish_reason,
        )

    async def aclose(self) -> None:
        await self.client.close()

    def _served(self, response: ModelResponse) -> str:
        """The model that really answered, a dated snapshot perhaps. Some servers give a path on their disk instead."""
        served = response.model_name
        return served if served and not PurePosixPath(served).is_absolute() else self.name


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what will not get better by asking again into a refusal. Every other failure keeps its own type."""
    try:
        yield
    except (ModelAuthenticationError, ModelRateLimitError, ModelQuotaExceededError, ContentFilterError) as error:
        raise RefusedByProviderError(type(error).__name__) from error
    except ModelRequestRejectedError as error:
        if _speaks_of_policy(error):
            raise RefusedByProviderError("content_policy") from error
        raise


def _speaks_of_policy(error: ModelAPIError) -> bool:
    said = (error.provider_error_code, error.provider_error_type, error.body)
    return any(_POLICY_WORDS.search(str(part)) for part in said if part)


def _conversation(messages: Sequence[Message]) -> list[ModelMessage]:
    conversation: list[ModelMessage] = []
    parts: list[SystemPromptPart | UserPromptPart] = []
    for message in messages:
        match message.role:
            case "system":
                parts.append(SystemPromptPart(content=message.content))
            case "user":
                parts.append(UserPromptPart(content=message.content))
            case "assistant":
                conversation += [ModelRequest(parts=parts), ModelResponse(parts=[TextPart(message.content)])]
                parts = []
            case other:
                raise ValueError(f"role must be system, user or assistant, got {other!r}")
    return [*conversation, ModelRequest(parts=parts)]


def _text(response: ModelResponse) -> str:
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def _without_thinking(text: str) -> str:
    """An answer without the think block it may begin with. A block that never ends has no answer after it."""
    if not text.lstrip().startswith("<think>"):
        return text
    return text.partition("</think>")[2].lstrip()


def _called(response: ModelResponse, tool: str) -> str:
    """What the tool was called with, as text. Two calls come out as two objects, which a reader refuses."""
    calls = [part for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name == tool]
    return "\n".join(part.args if isinstance(part.args, str) else json.dumps(part.args) for part in calls)
