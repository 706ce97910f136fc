"""How untrusted text stands in a prompt: on one line, nothing hidden, unable to end its block. One rule for all.

A record's text is written by whoever talked to the assistant. Wherever it is shown to a model (the session's profile,
admitted records, a policy's blocks), it goes through here.
"""

from __future__ import annotations

import re
import secrets
import unicodedata

_DELIMITER = re.compile(r"[A-Za-z0-9]{8,64}")

# Characters that end a line somewhere: in a terminal, a tokenizer, a JSON reader or a Unicode-aware splitter.
_LINE_BREAKS = re.compile("[\t\n\x0b\x0c\r\x1c-\x1f\x85\u2028\u2029]+")

# Format characters (Cf) that text in some script needs: joiners in Persian, Indic scripts and emoji. All others,
# among them the bidirectional overrides and the invisible tag letters, can hide text from a reader and are removed.
_JOINERS = "\u200c\u200d"

# Letters that show nothing, whatever their category says.
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")

# One of these after a letter or an emoji chooses its shape; a row of them spells bytes that nobody sees.
_INVISIBLE = f"[{_JOINERS}\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_INVISIBLE_ROW = re.compile(f"({_INVISIBLE}{{2}}){_INVISIBLE}+")


def new_delimiter() -> str:
    """A block name nobody can guess: 64 random bits as 16 hexadecimal digits. Draw one for each block."""
    return secrets.token_hex(8)


def check_delimiter(delimiter: str) -> None:
    """Raises ValueError unless the delimiter is 8 to 64 ASCII letters and digits."""
    if not _DELIMITER.fullmatch(delimiter):
        raise ValueError(
            f"delimiter must be 8 to 64 ASCII letters and digits, got {len(delimiter)} characters; use new_delimiter()"
        )


def one_line(text: str, delimiter: str) -> str:
    """The text on one line, without control or hidden characters, in which `delimiter` does not occur.

    Raises:
        ValueError: the delimiter is not 8 to 64 ASCII letters and digits.
    """
    check_delimiter(delimiter)
    shown = "".join(char for char in _LINE_BREAKS.sub(" ", text) if not _is_hidden(char))
    # A shape and a joiner may follow one another (emoji of two people do that); three in a row say something else.
    shown = _INVISIBLE_ROW.sub(r"\1", shown)
    # Breaking one occurrence can leave an overlapping one, so look again; every round adds a space, so it ends.
    while re.search(delimiter, shown, re.IGNORECASE):
        shown = re.sub(delimiter, lambda match: f"{match[0][:4]} {match[0][4:]}", shown, flags=re.IGNORECASE)
    return shown


def untagged_line(text: str, delimiter: str) -> str:
    """As `one_line`, and no tag or control token can be spelled in it, yet `3 < 5` still reads as such.

    Raises:
        ValueError: the delimiter is not 8 to 64 ASCII letters and digits.
    """
    return re.sub(r"<(?=\S)|(?<=\S)>", lambda match: "‹" if match[0] == "<" else "›", one_line(text, delimiter))


def _is_hidden(char: str) -> bool:
    return (unicodedata.category(char) in {"Cc", "Cf", "Cs"} and char not in _JOINERS) or char in _BLANK_LETTERS
