"""The two tables of `cases/` as the gate's cases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from benchmarks.activation_gate import BEGAN, Case
from retold.contracts.extraction import OwnTurn

TABLES = Path(__file__).parent / "cases"


def positives() -> list[Case]:
    cases = []
    for place, (language, category, noted, said) in enumerate(_rows("positives.txt")):
        start, end = said.index("[["), said.index("]]")
        text = said.replace("[[", "").replace("]]", "")
        case_id = f"{language}/{place}"
        claim = said[start + 2 : end]
        cases.append(Case(case_id, language, category, True, noted, claim, (own_turn(text),)))
    return cases


def negatives() -> list[Case]:
    cases = []
    for place, (language, reason, noted, said) in enumerate(_rows("negatives.txt")):
        turns = tuple(
            own_turn(text, minute)
            for minute, text in enumerate(part.strip() for part in said.split(" // "))
            if not text.startswith(("assistant:", "tool:"))
        )
        case_id = f"{language}/{reason}/{place}"
        cases.append(Case(case_id, language, reason, False, noted if noted != "-" else turns[0].text, None, turns))
    return cases


def own_turn(text: str, minute: int = 0, session: str = "s") -> OwnTurn:
    ref = f"{session}/t{minute}"
    return OwnTurn(
        session_id=session, turn_id=f"t{minute}", turn_ref=ref, text=text, said_at=BEGAN + timedelta(minutes=minute)
    )


def _rows(name: str) -> Iterator[list[str]]:
    for line in (TABLES / name).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            yield [cell.strip().replace("\\n", "\n") for cell in line.split("|", 3)]
