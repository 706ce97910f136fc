"""Reads the authored corpus and renders it: one fact becomes records and questions in every form.

Slots: {S} subject, {P} possessive, {O} object, {p}/{s}/{o} the pronouns that follow, <likes> a verb that agrees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
_VERB = re.compile(r"<(\w+)>")
_IRREGULAR = {"is": "am", "was": "was", "has": "have", "does": "do", "goes": "go"}


@dataclass(frozen=True)
class Voice:
    """Who is speaking or spoken about, as the slots need it."""

    subject: str
    possessive: str
    object: str
    pronouns: tuple[str, str, str]
    first_person: bool = False

    def render(self, template: str) -> str:
        their, they, them = self.pronouns
        text = _VERB.sub(lambda verb: self._agree(verb.group(1)), template)
        for slot, word in (
            ("{S}", self.subject), ("{P}", self.possessive), ("{O}", self.object),
            ("{p}", their), ("{s}", they), ("{o}", them),
        ):  # fmt: skip
            text = text.replace(slot, word)
        return text[:1].upper() + text[1:]

    def _agree(self, verb: str) -> str:
        if not self.first_person:
            return verb
        if verb in _IRREGULAR:
            return _IRREGULAR[verb]
        for ending, base in (("ies", "y"), ("shes", "sh"), ("ches", "ch"), ("sses", "ss"), ("s", "")):
            if verb.endswith(ending):
                return verb.removesuffix(ending) + base
        return verb


FIRST = Voice("I", "my", "me", ("my", "I", "me"), first_person=True)
USER = Voice("The user", "the user's", "the user", ("their", "they", "them"))


def named(name: str, *, woman: bool) -> Voice:
    return Voice(name, f"{name}'s", name, ("her", "she", "her") if woman else ("his", "he", "him"))


@dataclass(frozen=True)
class Fact:
    """A record, the questions it answers (with slots), those without pronoun, and near ones it does not answer."""

    record: str
    questions: tuple[str, ...]
    bare: tuple[str, ...]
    near: tuple[str, ...]


@dataclass(frozen=True)
class Preference:
    record: str
    turns: tuple[str, ...]
    unrelated: tuple[str, ...]


def facts() -> list[Fact]:
    found = []
    for _, line in lines("facts.txt"):
        record, *rest = [part.strip() for part in line.split("|")]
        found.append(
            Fact(
                record,
                tuple(part for part in rest if part[0] not in "=~"),
                tuple(part[1:].strip() for part in rest if part[0] == "="),
                tuple(part[1:].strip(" =") for part in rest if part[0] == "~"),
            )
        )
    return found


def preferences() -> list[Preference]:
    found = []
    for _, line in lines("preferences.txt"):
        record, *turns = [part.strip() for part in line.split("|")]
        found.append(
            Preference(
                record,
                tuple(turn for turn in turns if turn[0] != "~"),
                tuple(turn[1:].strip() for turn in turns if turn[0] == "~"),
            )
        )
    return found


def section(file: str, wanted: str) -> list[str]:
    return [line for name, line in lines(file) if name == wanted]


def lines(file: str) -> Iterator[tuple[str, str]]:
    """(section, line) of a corpus file, comments and blank lines left out."""
    name = ""
    for line in (FOLDER / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            name = line.removeprefix("## ").strip()
        elif line.strip() and not line.startswith("#"):
            yield name, line.strip()
