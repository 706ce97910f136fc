"""How a refused input is explained: one line per field, saying what was wrong and what the limit is."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

FIELD_MAX_CHARS = 64
LINES_MAX = 20
NO_NAME = "a member whose name is no field's"


def refusal_text(error: ValidationError) -> str:
    """`field: what was wrong`, joined by `; `, at most `LINES_MAX` of them.

    The refused value is never repeated: it may be personal. Nor is the name of an unknown member, if it could be no
    field's: whoever sends it chooses it, and what is said here is kept in histories and in the audit trail.
    """
    details = error.errors(include_url=False, include_input=False)
    lines = []
    for detail in details[:LINES_MAX]:
        where = ".".join(_places(detail)) or "request"
        lines.append(f"{where}: {detail['msg'].removeprefix('Value error, ')}")
    if left_out := len(details) - len(lines):
        lines.append(f"and {left_out} more")
    return "; ".join(lines)


def _places(detail: ErrorDetails) -> list[str]:
    places = [str(part) for part in detail["loc"]]
    if detail["type"] == "extra_forbidden" and not (places[-1].isidentifier() and len(places[-1]) <= FIELD_MAX_CHARS):
        places[-1] = NO_NAME
    return places
