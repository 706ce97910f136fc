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

ANSWER_MAX_CHARS = 16_000
"""Above any valid decision: 32 candidates take about 7,000. Thinking before it is not counted."""

# Together with the length, this keeps a runaway answer full of braces from holding the event loop.
_MAX_STARTS = 100

M = TypeVar("M", bound=BaseModel)


def read_decision(reply: str, schema: type[M]) -> M:
    """The one decision in a reply.

    Raises:
        MalformedReplyError: with a short code and never a word of the reply: `empty`, `too_long`, `too_many_braces`,
            `no_valid_object` or `several_objects`.
    """
    if not reply.strip():
        raise MalformedReplyError("empty")
    answer = _after_thinking(reply)
    if len(answer) > ANSWER_MAX_CHARS:
        raise MalformedReplyError("too_long")
    found: list[M] = []
    for value in _objects(answer):
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
    """Every complete JSON object that is not inside another one, from left to right.

    Raises:
        MalformedReplyError: `too_many_braces`.
    """
    position = text.find("{")
    for _ in range(_MAX_STARTS):
        if position == -1:
            return
        try:
            value, end = _DECODER.raw_decode(text, position)
            # Half of a surrogate pair decodes, but no store and no payload can carry it.
            json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            end = position + 1
        else:
            yield value
        position = text.find("{", end)
    if position != -1:
        raise MalformedReplyError("too_many_braces")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeated_keys, parse_constant=_no_constant)
