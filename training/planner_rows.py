"""Turns for the planner's two heads, with the group that may not be split over folds."""

from __future__ import annotations

import random
from dataclasses import dataclass

from training import corpus

LANGUAGES = ("de", "fr", "es", "hi", "zh", "other")
MONTHS = (
    "January", "March", "April", "May", "June", "July", "September", "October", "November", "December",
)  # fmt: skip
PEOPLE = (
    "Carla", "Bastian", "Yara", "Priya", "Tomas", "Hanna", "Emre", "Noor", "Ines", "Farid", "Lotte", "Keiko", "Pavel",
    "Mireille", "Samir", "Rosalind", "Idris", "Bea", "Anouk", "Jonas", "Deniz", "Rosa", "Olga", "Ivo", "Lena", "Paula",
    "Mika", "Martin", "Emily", "George", "Laura", "Peter", "Sophie", "Daniel", "Kate", "Oliver", "Hannah", "Lucas",
)  # fmt: skip
WOMEN = frozenset({
    "Carla", "Yara", "Priya", "Hanna", "Noor", "Ines", "Lotte", "Keiko", "Mireille", "Rosalind", "Bea",
    "Anouk", "Rosa", "Olga", "Lena", "Paula", "Emily", "Laura", "Sophie", "Kate", "Hannah",
})  # fmt: skip


@dataclass(frozen=True)
class TurnRow:
    text: str
    kind: str
    """recall, preference or ordinary."""
    stratum: str
    group: str


def person(name: str) -> corpus.Voice:
    return corpus.named(name, woman=name in WOMEN)


def turn_rows(seed: int = 7) -> list[TurnRow]:
    dice = random.Random(seed)
    rows: list[TurnRow] = []
    for number, fact in enumerate(corpus.facts()):
        group = f"fact{number}"
        for question in (*fact.questions, *fact.near):
            rows.append(TurnRow(_dated(corpus.FIRST.render(question), dice), "recall", "first", group))
            who = person(dice.choice(PEOPLE))
            rows.append(TurnRow(_dated(who.render(question), dice), "recall", "third", group))
        rows += [TurnRow(_dated(bare, dice), "recall", "no_pronoun", group) for bare in fact.bare]
    for number, (form, line) in enumerate(corpus.lines("recall.en.txt")):
        stratum = "first" if form == "explicit" else form
        rows.append(TurnRow(line, "recall", stratum, f"recall{number}"))
    for number, preference in enumerate(corpus.preferences()):
        group = f"preference{number}"
        rows += [TurnRow(turn, "preference", "preference", group) for turn in preference.turns]
        rows += [TurnRow(turn, "ordinary", "topic", group) for turn in preference.unrelated]
    for number, (_, line) in enumerate(corpus.lines("preference_turns.en.txt")):
        rows.append(TurnRow(line, "preference", "preference", f"preference-turn{number}"))
    for number, (stratum, line) in enumerate(corpus.lines("ordinary.en.txt")):
        rows.append(TurnRow(line, "ordinary", stratum, f"ordinary{number}"))
    for language in LANGUAGES:
        for number, (kind, line) in enumerate(corpus.lines(f"turns.{language}.txt")):
            rows.append(TurnRow(line, kind, f"{kind}_{language}", f"{language}{number}"))
    rows += _framed(dice)
    return rows


def _dated(question: str, dice: random.Random) -> str:
    """One question in seven names the day: numbers in a date are no arithmetic."""
    if dice.random() > 1 / 7 or not question.endswith("?"):
        return question
    form = dice.choice(
        ("on {day} {month}, {year}", "on {month} {day}, {year}", "in {month} {year}", "on the {day}th of {month}")
    )
    day, month, year = dice.randint(4, 19), dice.choice(MONTHS), dice.choice((2021, 2022, 2023, 2024, 2025))
    return f"{question[:-1]} {form.format(day=day, month=month, year=year)}?"


def _framed(dice: random.Random) -> list[TurnRow]:
    """The same topics in frames of all three kinds. Grouped by frame: a head must do without the frame it saw."""
    topics = [line for _, line in corpus.lines("topics.txt")]
    rows = []
    for kind, draws in (("ordinary", 14), ("recall", 10), ("preference", 14)):
        for number, frame in enumerate(corpus.section("frames.txt", kind)):
            for topic, second in zip(dice.sample(topics, draws), dice.sample(topics, draws), strict=True):
                text = frame.replace("{topic2}", second).replace("{topic}", topic)
                text = text.replace("{person}", dice.choice(PEOPLE))
                rows.append(TurnRow(text, kind, f"framed_{kind}", f"frame-{kind}-{number}"))
    return rows
