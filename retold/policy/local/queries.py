"""From a turn to retrieval queries and their category: filler off, a compound question in its parts."""

from __future__ import annotations

import re

from retold.contracts._base import QUERY_MAX_CHARS
from retold.contracts.stages import GapCategory
from retold.policy.local.lexicon import Lexicon, spaced
from retold.retrieval.text import content_words

MAX_PARTS = 3
"""As many as a turn may have gaps: further questions of a long turn are not searched for."""

_FILLER = re.compile(
    r"^(?:(?:hi|hey|hello|ok|okay|so|well|and|but|by the way|please|sorry|one more thing|another thing)\b[,!.:]?\s+)*"
    r"(?:(?:can|could|would|will) you (?:please )?(?:tell|remind) me(?: again)?[,:]?\s+"
    r"|(?:please )?remind me(?: again)?[,:]?\s+"
    r"|(?:please )?tell me(?: again)?[,:]?\s+|do you (?:still )?(?:know|remember)[,:]?\s+"
    r"|i (?:forgot|forget|wonder|want to know)[,:]?\s+"
    r"|i(?:'m| am) trying to remember[,:]?\s+)?(?:please\s+)?",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r"(?:,?\s+(?:again|please|though|thanks|thank you|do you know))*\s*[?？؟.!…]*\s*$", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?？。！؟])\s+|(?<=[？。！])|\n+")
_QUESTION_WORD = (
    r"what|when|where|who|whom|whose|which|why|how|did|do|does|is|are|was|were|has|have|am|can|"
    r"wann|wo|wer|was|warum|wie|welche[rsn]?|quand|où|qui|que|quel(?:le)?s?|comment|pourquoi|"
    r"cuándo|dónde|quién|qué|cuál|cómo|kab|कब|कहाँ|क्या|कौन"
)
_SPLIT = re.compile(rf",?\s+(?:and|und|et|y|e|और)(?:\s+also)?\s+(?=(?:{_QUESTION_WORD})\b)", re.IGNORECASE)
_POINTS_BACK = re.compile(r"\b(?:it|its|that|this|they|them|their|those|these|there|then)\b", re.IGNORECASE)
_CHINESE_SPLIT = re.compile("[，,](?=[^，,]*(?:什么|哪|谁|几|多|吗|怎))")

_DECISION = Lexicon("""
    decide, decided, decision, agree, agreed, agreement, choose, chose, chosen, picked, pick, settled,
    approved, conclusion, instead of, drop, version, naming, we use, entschieden, beschlossen, gewählt,
    vereinbart, décidé, choisi, choisie, convenu, decidimos, elegimos, acordado, चुना, तय, 决定, 选了, 商定
""")
_CONSTRAINT = Lexicon("""
    limit, budget, deadline, freeze, allergic, allergies, allergy, allowed, may i, can i, constraint, maximum,
    minimum, size, time zone, timezone, hours, schedule, appointment, due, expire, expires, valid, rule,
    policy, password, medicine, termin, frist, allergisch, rendez vous, délai, allergique, cita, plazo,
    alérgico, alérgica, अपॉइंटमेंट, एलर्जी, 预约, 过敏, 期限, 时区
""")
_TASK_STATE = Lexicon("""
    leave off, left off, we stopped, status, progress, next step, to do, todo, continue, draft, blocked,
    pick up where, working on, remaining, left on, milestone, stehen geblieben, en étions nous, lo dejamos,
    रुके, 说到哪里, 进度
""")


def category(turn: str, *, prefers: bool) -> GapCategory:
    """The kind of gap; `prefers` says that the preference head is the stronger one."""
    said = spaced(turn)
    if prefers:
        return GapCategory.PREFERENCE
    for words, kind in (
        (_TASK_STATE, GapCategory.TASK_STATE), (_DECISION, GapCategory.PRIOR_DECISION),
        (_CONSTRAINT, GapCategory.CONSTRAINT),
    ):  # fmt: skip
        if words.in_(said):
            return kind
    return GapCategory.RELATIONSHIP_OR_EVENT


def parts(turn: str) -> list[str]:
    """The questions of a turn, at most three; the turn itself if it holds only one.

    A part that points at another ("... and how much did it cost") stays with it.
    """
    sentences = [each.strip() for each in _SENTENCE.split(turn) if each and each.strip()]
    asked = [each for each in sentences if each.endswith(("?", "？", "؟"))]
    if len(asked) < 2:
        asked = [turn.strip()] if len(sentences) < 2 or not asked else asked
    split: list[str] = []
    for sentence in asked:
        pieces = [piece.strip() for part in _SPLIT.split(sentence) for piece in _CHINESE_SPLIT.split(part)]
        split += pieces if all(_stands_alone(piece) for piece in pieces) else [sentence]
    return split[:MAX_PARTS]


def _stands_alone(piece: str) -> bool:
    return bool(content_words(piece)) and not _POINTS_BACK.search(piece)


def opening_question(turn: str) -> str | None:
    """The question a turn opens with, filler off, if the turn is more than that; what follows may hide it."""
    sentences = [each.strip() for each in _SENTENCE.split(turn) if each and each.strip()]
    first = sentences[0] if sentences else ""
    if not first.endswith(("?", "？", "؟")):
        return None
    bare = _FILLER.sub("", first, count=1)
    bare = bare[:1].upper() + bare[1:]
    return bare if content_words(bare) and bare != turn.strip() else None


def query(text: str) -> str:
    """What to search for: the question without filler and closing marks, at most 400 characters.

    A text that is filler from end to end stays as it is, for a query may not be blank.
    """
    flat = " ".join(text.split())
    bare = _TRAILING.sub("", _FILLER.sub("", flat, count=1))
    return (bare or flat)[:QUERY_MAX_CHARS].strip()
