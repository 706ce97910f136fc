"""Reading one JSON object out of whatever a model wrote around it. When in doubt there was no decision.

Providers that enforce a schema still answer prose at times, and compatible servers ignore the schema altogether, so
every reply is read the same way: exactly one object of the schema, in prose, fences or after a think block. No valid
object, two different ones, a cut-off one or one with a key twice is malformed, and memory stays out of the turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from retold.policy.ports import MalformedReplyError

REPLY_MAX_CHARS = 32_000
"""Far above any valid decision; keeps the search below from getting slow on a runaway reply."""

M = TypeVar("M", bound=BaseModel)


def read_decision(reply: str, schema: type[M]) -> M:
    """The one decision in a reply.

    Raises:
        MalformedReplyError: with a short code and never a word of the reply: `empty`, `too_long`, `no_valid_object`
            or `several_objects`.
    """
    if not reply.strip():
        raise MalformedReplyError("empty")
    if len(reply) > REPLY_MAX_CHARS:
        raise MalformedReplyError("too_long")
    found: list[M] = []
    for value in _objects(_after_thinking(reply)):
        try:
            decision = schema.model_validate(value, strict=True)
        except ValidationError:
            continue
        if decision not in found:
            found.append(decision)
    if not found:
        raise MalformedReplyError("no_valid_object")
    if len(found) > 1:
        raise MalformedReplyError("several_objects")
    return found[0]


def _after_thinking(reply: str) -> str:
    """What follows the last think block. One that never ends has nothing after it."""
    answer = reply.rpartition("</think>")[2]
    return answer.partition("<think>")[0]


def _objects(text: str) -> Iterator[Any]:
    """Every complete JSON object that is not inside another one, from left to right."""
    position = text.find("{")
    while position != -1:
        try:
            value, end = _DECODER.raw_decode(text, position)
            # Half of a surrogate pair decodes, but no store and no payload can carry it.
            json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            end = position + 1
        else:
            yield value
        position = text.find("{", end)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeated_keys, parse_constant=_no_constant)
