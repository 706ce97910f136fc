"""Invented people with invented memories, and turns whose gold is known because we wrote both.

Each person has a friend; a fact may be the person's own, the friend's or nobody's. Asking for the friend's fact as
one's own, for a near event or for a fact nobody has gives the turns that must be left unanswered.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from retold.contracts.record import MemoryRecord, RecordType
from training import corpus
from training.planner_rows import PEOPLE, person

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_FRAMED_EACH = 70


@dataclass(frozen=True)
class Case:
    turn: str
    kind: str
    """recall, preference, unanswerable or ordinary."""
    gold: frozenset[str]


@dataclass
class Person:
    name: str
    records: list[MemoryRecord] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)


def people(count: int, seed: int = 11) -> Iterator[Person]:
    dice = random.Random(seed)
    facts, preferences = corpus.facts(), corpus.preferences()
    ordinary = [line for _, line in corpus.lines("ordinary.en.txt")]
    for number in range(count):
        me, friend = dice.sample(PEOPLE, 2)
        made = _Maker(me, friend, dice, style=("name", "user", "i", "name")[number % 4])
        for at, fact in enumerate(facts):
            made.fact(f"f{at}", fact)
        for subject in (me, friend):
            for at in range(_FRAMED_EACH):
                made.framed(f"t{at}", subject)
        for at, preference in enumerate(preferences):
            made.preference(f"p{at}", preference)
        made.person.cases += [Case(turn, "ordinary", frozenset()) for turn in dice.sample(ordinary, 60)]
        yield made.person


class _Maker:
    def __init__(self, me: str, friend: str, dice: random.Random, style: str) -> None:
        self.person = Person(me)
        self._me, self._friend, self._dice, self._style = me, friend, dice, style
        self._sessions = [
            datetime(2023, 1, 3, 18, tzinfo=UTC) + timedelta(days=dice.randrange(3, 600)) for _ in range(28)
        ]
        self._topics = [line for _, line in corpus.lines("topics.txt")]
        self._frames = corpus.section("frames.txt", "record")

    def fact(self, key: str, fact: corpus.Fact) -> None:
        whose = self._dice.choices(("me", "friend", "nobody"), (45, 33, 22))[0]
        asks = self._dice.choice(fact.questions)
        if whose == "nobody":
            self._case(corpus.FIRST.render(asks), "unanswerable")
            return
        about = self._me if whose == "me" else self._friend
        record = self._write(key, about, fact.record)
        dated = self._dice.random() < 0.15
        if whose == "me":
            self._case(self._dated(corpus.FIRST.render(asks), record if dated else None), "recall", record)
            if self._dice.random() < 0.3:
                self._case(person(self._me).render(asks), "recall", record)
            if fact.bare and self._dice.random() < 0.5:
                self._case(self._dice.choice(fact.bare), "recall", record)
            if self._dice.random() < 0.5:
                self._case(person(self._friend).render(self._dice.choice(fact.questions)), "unanswerable")
            near = corpus.FIRST
        else:
            self._case(person(self._friend).render(asks), "recall", record)
            self._case(
                self._dated(corpus.FIRST.render(self._dice.choice(fact.questions)), record if dated else None),
                "unanswerable",
            )
            near = person(self._friend)
        for asks in self._dice.sample(fact.near, min(len(fact.near), 2)):
            if self._dice.random() < 0.7:
                self._case(near.render(asks), "unanswerable")

    def framed(self, key: str, about: str) -> None:
        topic, other = self._dice.choice(self._topics), self._dice.choice(PEOPLE)
        frame = self._dice.choice(self._frames).replace("{topic}", topic).replace("{person}", other)
        self._write(f"{key}-{about}", about, frame)

    def preference(self, key: str, preference: corpus.Preference) -> None:
        turn = self._dice.choice(preference.turns)
        if self._dice.random() < 0.35:
            record = self._write(key, self._me, preference.record, plain=True)
            self._case(turn, "preference", record)
            self.person.cases += [Case(each, "ordinary", frozenset()) for each in preference.unrelated]

    def _write(self, key: str, about: str, template: str, *, plain: bool = False) -> MemoryRecord:
        own = about == self._me
        voice = person(about)
        if own and self._style == "user":
            voice = corpus.USER
        elif own and self._style == "i":
            voice = corpus.FIRST
        record = MemoryRecord(
            id=f"{self._me}-{key}",
            tenant="training",
            user=self._me,
            type=RecordType.SEMANTIC,
            subject="user" if own else about,
            text=template if plain else voice.render(template),
            created_at=self._dice.choice(self._sessions),
        )
        self.person.records.append(record)
        return record

    def _dated(self, question: str, record: MemoryRecord | None) -> str:
        if record is None or not question.endswith("?"):
            return question
        told = record.told_at
        when = self._dice.choice(("in {month} {year}", "in {month}", "on {day} {month}", "in {month}, {year}"))
        return question[:-1] + " " + when.format(month=MONTHS[told.month - 1], year=told.year, day=told.day) + "?"

    def _case(self, turn: str, kind: str, record: MemoryRecord | None = None) -> None:
        self.person.cases.append(Case(turn, kind, frozenset({record.id} if record else ())))
