"""Turns for the planner's two heads, with the group that may not be split over folds."""

from __future__ import annotations

import random
from dataclasses import dataclass

from training import corpus

LANGUAGES = ("de", "fr", "es", "hi", "zh", "other")
PEOPLE = (
    "Carla", "Bastian", "Yara", "Priya", "Tomas", "Hanna", "Emre", "Noor", "Ines", "Farid", "Lotte", "Keiko", "Pavel",
    "Mireille", "Samir", "Rosalind", "Idris", "Bea", "Anouk", "Jonas", "Deniz", "Rosa", "Olga", "Ivo", "Lena", "Paula",
    "Mika", "Martin", "Emily", "George", "Laura", "Peter", "Sophie", "Daniel", "Kate", "Oliver", "Hannah", "Lucas",
)  # fmt: skip
WOMEN = frozenset(
    "Carla Yara Priya Hanna Noor Ines Lotte Keiko Mireille Rosalind Bea Anouk Rosa Olga Lena Paula Emily Laura Sophie "
    "Kate Hannah".split()
)


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
            rows.append(TurnRow(corpus.FIRST.render(question), "recall", "first", group))
            who = person(dice.choice(PEOPLE))
            rows.append(TurnRow(who.render(question), "recall", "third", group))
        rows += [TurnRow(bare, "recall", "no_pronoun", group) for bare in fact.bare]
    for number, (form, line) in enumerate(corpus.lines("recall.en.txt")):
        stratum = "first" if form == "explicit" else form
        rows.append(TurnRow(line, "recall", stratum, f"recall{number}"))
    for number, preference in enumerate(corpus.preferences()):
        group = f"preference{number}"
        rows += [TurnRow(turn, "preference", "preference", group) for turn in preference.turns]
        rows += [TurnRow(turn, "ordinary", "topic", group) for turn in preference.unrelated]
    for number, (stratum, line) in enumerate(corpus.lines("ordinary.en.txt")):
        rows.append(TurnRow(line, "ordinary", stratum, f"ordinary{number}"))
    for language in LANGUAGES:
        for number, (kind, line) in enumerate(corpus.lines(f"turns.{language}.txt")):
            rows.append(TurnRow(line, kind, f"{kind}_{language}", f"{language}{number}"))
    rows += _framed(dice)
    return rows


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
