"""What a statement asks for, in terms that can be compared across wordings and languages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from retold.policy.activation.reading import Clause, Sentence
from retold.policy.activation.words import Found

# Two names of one axis; the second means less of the first.
_OPPOSITES = {
    "long": "short",
    "casual": "formal",
    "jargon": "plain",
    "flattery": "direct",
    "prose": "bullets",
    "beginner": "expert",
}
_NO_AXIS = frozenset({"tone", "layout", "options"})
"""Too many different things under one name to tell agreement from disagreement by their sign."""


@dataclass(frozen=True)
class Claims:
    axes: frozenset[tuple[str, int]] = frozenset()
    """(axis, +1 or -1): ("short", 1) is asked for by "be brief" and by "no long answers"."""
    languages: frozenset[tuple[str, int]] = frozenset()
    needs: frozenset[str] = frozenset()
    """Accessibility needs that are named."""
    loose: frozenset[str] = frozenset()
    """Things named whose sign says little: tone, layout."""

    @property
    def empty(self) -> bool:
        return not (self.axes or self.languages or self.needs or self.loose)

    @property
    def wanted_languages(self) -> frozenset[str]:
        return frozenset(code for code, sign in self.languages if sign > 0)

    def contradicts(self, other: Claims) -> bool:
        """The two ask for opposite things, or for different response languages."""
        if any((axis, -sign) in other.axes for axis, sign in self.axes):
            return True
        if any((code, -sign) in other.languages for code, sign in self.languages):
            return True
        mine, theirs = self.wanted_languages, other.wanted_languages
        return bool(mine and theirs and not (mine <= theirs or theirs <= mine))

    def names(self, other: Claims) -> bool:
        """The two are about the same thing, whatever they ask of it."""
        axes, languages = {axis for axis, _ in self.axes}, {code for code, _ in self.languages}
        return bool(
            axes & {axis for axis, _ in other.axes}
            or languages & {code for code, _ in other.languages}
            or self.needs & other.needs
            or self.loose & other.loose
        )

    def supports(self, other: Claims) -> bool:
        """This statement says all that `other` says: nothing against it, nothing `other` adds, the same languages."""
        if self.contradicts(other):
            return False
        if not (other.languages <= self.languages and other.axes <= self.axes and other.needs <= self.needs):
            return False
        if self.languages and not other.languages and not (self.axes & other.axes or self.needs & other.needs):
            return False
        return bool(
            self.axes & other.axes
            or self.languages & other.languages
            or self.needs & other.needs
            or self.loose & other.loose
        )


def claims_of(sentences: Iterable[Sentence]) -> Claims:
    """Everything the sentences ask for, outside "even if I ...": the sign is told clause by clause."""
    axes: set[tuple[str, int]] = set()
    languages: set[tuple[str, int]] = set()
    needs: set[str] = set()
    loose: set[str] = set()
    for sentence in sentences:
        carried = False
        for clause in spoken_clauses(sentence):
            # "Skip the greetings and sign-offs": what follows an "and" without a verb of its own shares the sign.
            carried = carried and sentence.text[: clause.start - sentence.start].endswith(" ")
            carried = carried and not clause.has("directive", "wish")
            signs = _signs(sentence, clause)
            for one, sign in signs:
                sign = -1 if carried and not clause.has("not") else sign
                if one.list == "style" and one.key in _NO_AXIS:
                    loose.add(one.key)
                elif one.list == "style":
                    axes.add((_OPPOSITES.get(one.key, one.key), -sign if one.key in _OPPOSITES else sign))
                elif one.list == "languages":
                    languages.add((one.key, sign))
                    languages.add((one.key.partition("-")[0], sign))
                elif one.list == "access":
                    needs.add(one.key)
            carried = carried or any(sign < 0 for _, sign in signs)
    return Claims(frozenset(axes), frozenset(languages), frozenset(needs), frozenset(loose))


def _signs(sentence: Sentence, clause: Clause) -> list[tuple[Found, int]]:
    """What a clause names, each with its sign: a negation turns what comes after it, or all of it if nothing does.

    Where the verb, and its negation with it, comes last, it turns all there is.
    """
    named = [one for one in clause.found if one.list in ("style", "languages", "access")]
    negations = [one.start for one in clause.found if one.list == "not"]
    if not negations:
        return [(one, 1) for one in named]
    first = min(negations)
    if verb_last(sentence) or not any(one.start >= first for one in named):
        return [(one, -1) for one in named]
    return [(one, -1 if one.start >= first else 1) for one in named]


def spoken_clauses(sentence: Sentence) -> list[Clause]:
    """The clauses, each without what "even if I write English" covers: that is no part of what is asked for."""
    clauses = []
    for clause in sentence.clauses:
        starts = [one.start for one in clause.found if one.list == "concessive"]
        if not starts:
            clauses.append(clause)
            continue
        first = min(starts)
        kept = tuple(one for one in clause.found if one.end <= first)
        if sentence.language in _CONCESSION_LAST:
            # "... diye yazsam da": the concession may come before its conjunction, so all before it goes instead.
            after = max(one.end for one in clause.found if one.list == "concessive")
            kept = tuple(one for one in clause.found if one.start >= after)
        if kept:
            clauses.append(Clause(clause.start, clause.end, kept, clause.words, ()))
    return clauses


_CONCESSION_LAST = frozenset({"tr", "ja", "ko", "ta", "te", "bn"})
_VERB_LAST = frozenset({"tr", "ja", "ko", "ta", "te", "bn", "hi", "ur", "mr", "fa"})


def verb_last(sentence: Sentence) -> bool:
    return sentence.language in _VERB_LAST
