"""An import file is read a line at a time; a bad line costs itself alone and says what is wrong with it."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.cli.import_lines import (
    BATCH_MAX_BYTES,
    BATCH_MAX_LINES,
    LINE_MAX_BYTES,
    BadLine,
    GoodLine,
    batch_id,
    read_batches,
    read_line,
)
from retold.contracts._base import RECORD_TEXT_MAX_CHARS, TURN_TEXT_MAX_CHARS
from retold.contracts.record import RecordWrite, TranscriptWrite
from retold.contracts.turn import Principal

TOVE = Principal(tenant="harbour", user="tove")

ascii_text = st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=20)
good = st.builds(lambda text: json.dumps({"text": "t" + text}).encode(), ascii_text)
bad = st.sampled_from(
    [
        b"{",
        b"[1]",
        b"null",
        b"\xff\xfe",
        b'{"text": ""}',
        b'{"text": "t", "activation": "ambient"}',
        b'{"text": "a NUL: \\u0000"}',
    ]
)
blank = st.sampled_from([b"", b"   ", b"\t"])


def batches(*lines: bytes) -> list[tuple[list[int], list[int]]]:
    """Line numbers of the good and the bad lines, batch by batch."""
    read = read_batches(io.BytesIO(b"\n".join(lines)))
    return [([line.line for line in batch.good], [line.line for line in batch.bad]) for batch in read]


@given(st.lists(st.one_of(good, bad, blank), max_size=450))
def test_every_line_is_read_once_in_order_under_its_own_number(lines: list[bytes]) -> None:
    read = list(read_batches(io.BytesIO(b"\n".join(lines))))
    numbers = [line.line for batch in read for line in batch.good]
    refused = [line.line for batch in read for line in batch.bad]

    expected_good = [n for n, line in enumerate(lines, 1) if line.startswith(b'{"text": "t') and b"ambient" not in line]
    expected_bad = [n for n, line in enumerate(lines, 1) if line.strip() and n not in set(expected_good)]
    assert (numbers, refused) == (expected_good, expected_bad)
    assert all(len(batch.good) <= BATCH_MAX_LINES for batch in read)
    assert all(sum(line.size_bytes for line in batch.good) <= BATCH_MAX_BYTES for batch in read)


def test_long_lines_make_small_batches() -> None:
    line = json.dumps({"kind": "turn", "session_id": "s", "turn_id": "1", "role": "user", "at": "2026-01-01T00:00:00Z",
                       "text": "\u00e9" * TURN_TEXT_MAX_CHARS}).encode()  # fmt: skip
    assert len(line) > BATCH_MAX_BYTES / 4

    assert batches(line, line, line) == [([1, 2], []), ([3], [])]


def test_the_longest_valid_line_is_short_enough_even_if_all_of_it_is_escaped() -> None:
    for content in (
        {"kind": "turn", "session_id": "s", "turn_id": "1", "role": "user", "at": "2026-01-01T00:00:00Z",
         "text": "\U0001f6b2" * TURN_TEXT_MAX_CHARS},
        {"text": "\U0001f6b2" * RECORD_TEXT_MAX_CHARS},
    ):  # fmt: skip
        assert isinstance(read_line(1, json.dumps(content, ensure_ascii=True).encode()), GoodLine)


def test_an_endless_line_is_refused_without_being_read_into_memory_and_the_next_one_is_fine() -> None:
    class Counting(io.BytesIO):
        longest = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            line = super().readline(size)
            self.longest = max(self.longest, len(line))
            return line

    file = Counting(b'{"text": "' + b"x" * (5 * LINE_MAX_BYTES) + b'"}\n{"text": "fine"}\n')
    (batch,) = read_batches(file)

    assert [line.line for line in batch.good] == [2]
    assert batch.bad == (BadLine(1, "line", "is longer than 500,000 bytes"),)
    assert file.longest <= LINE_MAX_BYTES + 1


def test_reading_never_runs_ahead_of_what_was_asked_for() -> None:
    file = io.BytesIO(b'{"text": "fact"}\n' * 10_000)
    next(read_batches(file))

    assert file.tell() < 3 * BATCH_MAX_LINES * len(b'{"text": "fact"}\n')


def test_a_line_is_a_record_unless_it_says_otherwise() -> None:
    record = read_line(1, b'\xef\xbb\xbf{"text": "The yearly fee is 640 euros."}')
    turn = read_line(
        2, b'{"kind":"turn","session_id":"s","turn_id":"1","role":"user","text":"Hi","at":"2026-01-01T00:00:00Z"}'
    )

    assert isinstance(record, GoodLine) and isinstance(record.content, RecordWrite)
    assert isinstance(turn, GoodLine) and isinstance(turn.content, TranscriptWrite)


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        (b'{"text": "a', "line", "is not JSON"),
        (b'{"text": NaN}', "line", "NaN"),
        (b"[" * 100_000, "line", "is not JSON"),
        (b'{"text": "\xff"}', "line", "is not UTF-8"),
        (b'"text"', "line", "must be a JSON object"),
        (b"{}", "text", "is missing"),
        (b'{"text": " "}', "text", "must not be empty or blank"),
        (b'{"text": "\\ud800"}', "text", "lone surrogates"),
        (b'{"text": "x", "activation": "ambient"}', "activation", "an import cannot set this field"),
        (b'{"text": "x", "status": "confirmed"}', "status", "an import cannot set this field"),
        (b'{"text": "x", "version": 3}', "version", "an import cannot set this field"),
        (b'{"text": "x", "source": "principal"}', "source", "host"),
        (b'{"text": "x", "colour": "red"}', "colour", "is no field of an import line"),
        (b'{"text": "x", "event_at": "2026-01-01T00:00:00"}', "event_at", "must carry a time zone"),
        (b'{"text": "x", "entities": ["ok", ""]}', "entities.1", "at least 1 character"),
        (b'{"kind": "note", "text": "x"}', "kind", "must be one of: record, turn"),
    ],
)  # fmt: skip
def test_a_bad_line_names_its_field_and_what_is_wrong(raw: bytes, field: str, says: str) -> None:
    refused = read_line(7, raw)

    assert isinstance(refused, tuple)
    assert [(bad.line, bad.field) for bad in refused] == [(7, field)]
    assert says in refused[0].message


def test_all_that_is_wrong_with_a_line_is_said_and_nothing_of_it_is_repeated() -> None:
    refused = read_line(1, b'{"text": "", "category": "my private matter", "activation": "my private matter"}')

    assert isinstance(refused, tuple)
    assert {bad.field for bad in refused} == {"text", "category", "activation"}
    assert not any("private" in bad.message for bad in refused)


def test_a_batch_is_named_by_whose_it_is_and_what_it_says() -> None:
    def lines(*texts: str, start: int = 1) -> list[GoodLine]:
        return [GoodLine(number, RecordWrite(text=text), 1) for number, text in enumerate(texts, start)]

    name = batch_id(TOVE, lines("a", "b"))
    assert name == batch_id(TOVE, lines("a", "b", start=50)), "where in a file the lines stand does not matter"
    assert name not in (
        batch_id(TOVE, lines("b", "a")),
        batch_id(TOVE, lines("a")),
        batch_id(Principal(tenant="harbourtove", user="x"), lines("a", "b")),
        batch_id(Principal(tenant="harbour", user="ruben"), lines("a", "b")),
    )
