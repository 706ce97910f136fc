"""What the reference policies need of a model. `retold.models.hosted` implements it; nothing here knows a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from retold.contracts._base import Contract
from retold.policy.ports import Generation, Message


class OutputSchema(Contract):
    """The JSON object a reply should be. Sent to the provider where it is supported, and checked here in any case."""

    name: str
    description: str
    json_schema: dict[str, Any]


class StructuredCompletion(Protocol):
    """One try, no retries, no time limit of its own; cancelling it ends the request.

    The text of the answer is returned as the model wrote it: reading it is the policy's business.

    Raises:
        MalformedReplyError: the answer was cut off at the token limit, or empty.
        RefusedByProviderError: credentials, quota, rate limit or content policy.
    """

    @property
    def identity(self) -> str: ...

    async def complete(self, messages: Sequence[Message], schema: OutputSchema) -> Generation: ...
