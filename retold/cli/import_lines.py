"""An import file, line by line: what a line says, or what is wrong with it; and how lines are sent together.

Reads a line at a time, so that a file of any size needs the memory of one batch. Nothing refused is ever repeated:
it may be personal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pydantic import TypeAdapter, ValidationError

from retold.contracts.identity import operation_workflow_id
from retold.contracts.record import ImportLine, MemoryRecord
from retold.contracts.turn import Principal

BATCH_MAX_LINES = 100
BATCH_MAX_BYTES = 500_000
"""Of text as it stands in the file: with its envelope far below the 2 MB Temporal takes."""
LINE_MAX_BYTES = BATCH_MAX_BYTES
"""Above the longest valid line even if every character of it is escaped."""

_LINES: TypeAdapter[ImportLine] = TypeAdapter(ImportLine)
_KINDS = ("record", "turn")
_NOT_FOR_IMPORTS = frozenset(MemoryRecord.model_fields)


@dataclass(frozen=True)
class BadLine:
    """One reason why a line was not imported."""

    line: int
    """From 1, as editors count."""
    field: str
    message: str


@dataclass(frozen=True)
class GoodLine:
    line: int
    content: ImportLine
    size_bytes: int


@dataclass(frozen=True)
class Batch:
    """Lines that are sent together, and the bad ones met on the way to them."""

    good: tuple[GoodLine, ...]
    bad: tuple[BadLine, ...]
    end_bytes: int
    """How far into the file the batch reaches."""


def read_batches(file: BinaryIO) -> Iterator[Batch]:
    """The file's lines in batches of at most 100 lines and 500 kB. Blank lines are skipped."""
    good: list[GoodLine] = []
    bad: list[BadLine] = []
    size = position = 0
    for number, raw, end in _numbered(file):
        read = read_line(number, raw)
        if isinstance(read, GoodLine):
            if good and (len(good) == BATCH_MAX_LINES or size + read.size_bytes > BATCH_MAX_BYTES):
                yield Batch(tuple(good), tuple(bad), position)
                good, bad, size = [], [], 0
            good.append(read)
            size += read.size_bytes
        else:
            bad.extend(read)
            if len(bad) >= BATCH_MAX_LINES:
                yield Batch(tuple(good), tuple(bad), end)
                good, bad, size = [], [], 0
        position = end
    if good or bad:
        yield Batch(tuple(good), tuple(bad), position)


def read_line(number: int, raw: bytes) -> GoodLine | tuple[BadLine, ...]:
    """What line `number` says: a record (the default) or a past turn; or every reason why it says neither."""
    if len(raw) > LINE_MAX_BYTES:
        return (BadLine(number, "line", f"is longer than {LINE_MAX_BYTES:,} bytes"),)
    try:
        content = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        return (BadLine(number, "line", f"is not UTF-8 (byte {error.start + 1})"),)
    except json.JSONDecodeError as error:
        return (BadLine(number, "line", f"is not JSON: {error.msg} (column {error.colno})"),)
    except (ValueError, RecursionError) as error:  # NaN and the like, a number of thousands of digits, deep nesting
        return (BadLine(number, "line", f"is not JSON that can be read: {error}"),)
    if not isinstance(content, dict):
        return (BadLine(number, "line", "must be a JSON object with the fields of a record or of a turn"),)
    try:
        line = _LINES.validate_python({"kind": "record", **content})
    except ValidationError as error:
        return tuple(_refused(number, error))
    return GoodLine(number, line, len(raw))


def batch_id(principal: Principal, lines: Iterable[GoodLine]) -> str:
    """The workflow id of a batch: the same lines for the same principal are the same import."""
    digest = hashlib.sha256(json.dumps([principal.tenant, principal.user]).encode())
    for line in lines:
        canonical = json.dumps(line.content.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        digest.update(b"\n" + canonical.encode())
    return operation_workflow_id("import", principal, digest.hexdigest())


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes, int]]:
    """Lines that are not blank, with their number and where they end. Of one too long only the beginning is kept."""
    number = position = 0
    while raw := file.readline(LINE_MAX_BYTES + 1):
        number += 1
        position += len(raw)
        rest = raw
        while not rest.endswith(b"\n") and len(rest) > LINE_MAX_BYTES and (rest := file.readline(LINE_MAX_BYTES + 1)):
            position += len(rest)
        if raw.strip():
            yield number, raw, position


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _refused(number: int, error: ValidationError) -> Iterator[BadLine]:
    for detail in error.errors(include_url=False, include_input=False):
        path = [str(part) for part in detail["loc"]]
        if path[:1] and path[0] in _KINDS:  # which of the two kinds it was read as
            path = path[1:]
        field = ".".join(path)
        match detail["type"]:
            case "extra_forbidden" if field in _NOT_FOR_IMPORTS:
                message = "an import cannot set this field; it is decided by review, evidence and the store"
            case "extra_forbidden":
                message = "is no field of an import line"
            case "missing":
                message = "is missing"
            case "union_tag_invalid":
                field, message = "kind", "must be one of: record, turn"
            case _:
                message = detail["msg"].removeprefix("Value error, ")
        yield BadLine(number, field or "line", message)
