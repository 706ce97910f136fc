"""How a refused input is explained: one line per field, saying what was wrong and what the limit is."""

from __future__ import annotations

from pydantic import ValidationError


def refusal_text(error: ValidationError) -> str:
    """`field: what was wrong`, joined by `; `. The refused value is never repeated: it may be personal."""
    lines = []
    for detail in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in detail["loc"]) or "request"
        lines.append(f"{where}: {detail['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)
