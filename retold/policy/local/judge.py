"""The joint judge without a generative model. EMPTY is its default: something must speak for every admission.

Scores come from trained heads over :mod:`candidate_features`; what candidates do to each other and to the draft
(duplicates, replaced values, things already said, records useful only together) is decided by rules in
:mod:`set_rules`; texts shaped like orders or secrets are out before anything is scored. Weights: `weights/judge.json`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord
from retold.contracts.stages import ProfileBlock, ProposedVerdict, Verdict
from retold.policy.local import (
    answerability,
    candidate_features,
    hazards,
    known_answers,
    lexicon,
    queries,
    set_rules,
    weights,
)
from retold.policy.local.candidate_features import Question, Read
from retold.policy.local.planner import TurnHeads
from retold.policy.local.reading import CandidateReader
from retold.policy.ports import AdmissionDecision, Embedder

_FEATURES = {
    "recall": candidate_features.NAMES,
    "preference": candidate_features.NAMES,
    "answerable": answerability.NAMES,
}


class LocalJudge:
    """Implements `AdmissionPolicy` with an embedder instead of a generative model.

    One call embeds the turn, every candidate and the words of both that were not seen lately.
    """

    def __init__(self, embedder: Embedder, *, max_admitted: int | None = None) -> None:
        """
        Args:
            max_admitted: at most so many records are admitted; the trained setting unless given. At least 1.

        Raises:
            WrongEmbedderError: the weights belong to another embedding model; the message names both.
            ValueError: `max_admitted` is below 1.
        """
        if max_admitted is not None and max_admitted < 1:
            raise ValueError(
                f"max_admitted must be at least 1, not {max_admitted}; to admit nothing, switch admission off"
            )
        self._turns = TurnHeads(embedder)
        self._weights = weights.load("judge", features=_FEATURES)
        self._weights.require(embedder.identity)
        self._max_admitted = max_admitted or int(self._weights.settings["max_admitted"])
        self._reader = CandidateReader(embedder, self._weights.word_counts)

    @property
    def identity(self) -> str:
        """Which judge decides, for bundles and decision rows: `local-judge/<hashes of both weights files>`."""
        return f"local-judge/{self._weights.digest}-{self._turns.weights.digest}"

    async def warm(self) -> None:
        """Embed the corpus's most common words, so that the first decisions cost what later ones do.

        About a second of CPU in the embedder's thread: call it at start-up. Decisions made without it, or meanwhile,
        are the same and only slower.
        """
        await self._reader.warm(self._weights.common_words)

    async def admit(
        self,
        turn: str,
        public_context: str | None,
        ambient_profile: ProfileBlock,
        draft: str,
        candidates: Sequence[MemoryRecord],
    ) -> AdmissionDecision:
        """One verdict a candidate; admitted are the helpful and jointly helpful ones, best first."""
        if not candidates:
            return AdmissionDecision()
        parts = queries.parts(turn)
        read = await self._reader.candidates(candidates)
        by_part = np.stack(
            [self._scores(await self._reader.question(part, candidates), candidates, read) for part in parts]
        )
        shown = [text for text in (public_context, ambient_profile.text) if text]
        verdicts = set_rules.judge_together(
            turn=turn,
            candidates=candidates,
            read=read,
            scores_by_part=by_part,
            hazardous=[hazards.is_hazardous(record.text) for record in candidates],
            known=[draft, *shown],
            answered=[known_answers.answers(part, shown) for part in parts],
            max_admitted=self._max_admitted,
        )
        order = sorted(range(len(candidates)), key=lambda at: -by_part[:, at].max())
        admitted = [at for at in order if verdicts[at] in (Verdict.HELPFUL, Verdict.JOINTLY_HELPFUL)]
        return AdmissionDecision(
            admitted=tuple(candidates[at].id for at in admitted),
            verdicts=tuple(
                ProposedVerdict(id=record.id, verdict=verdict.value)
                for record, verdict in zip(candidates, verdicts, strict=True)
            ),
        )

    def _scores(
        self, question: Question, candidates: Sequence[MemoryRecord], read: Sequence[Read]
    ) -> NDArray[np.float64]:
        """Per candidate, how far above its admission threshold it is, in logits; below 0 it stays out."""
        settings = self._weights.settings
        recall_margin, preference_margin = self._turns.margins(question.asked.text, question.asked.vector)
        inputs = candidate_features.candidate_inputs(question, candidates, read)
        out = np.full(len(candidates), -np.inf)
        ranked = self._weights.heads["recall"].score(inputs)
        if recall_margin + max(ranked.max(), 0.0) > -settings["turn_slack"]:
            gate = self._weights.heads["answerable"].score(answerability.inputs(inputs, ranked, recall_margin))
            if gate >= settings["answerable_threshold"]:
                answering = np.where(_about(question, inputs, settings), ranked, -np.inf)
                out = np.maximum(out, _first_and_close(answering, settings, "recall"))
        ranked = self._weights.heads["preference"].score(inputs)
        # A turn that plainly asks what was said is no wish: there, preferences would only walk round the gate above.
        if preference_margin > -settings["turn_slack"] and preference_margin > recall_margin - settings["wish_slack"]:
            out = np.maximum(out, _first_and_close(ranked, settings, "preference"))
        return out


def _about(question: Question, inputs: NDArray[np.float64], settings: dict[str, float]) -> NDArray[np.bool_]:
    """Which candidates can answer a question for one attribute of a thing: those that speak of the thing.

    Asked for the number of one's guest parking space, every record with a number looks a little right.
    """
    if not lexicon.ATTRIBUTE.in_(lexicon.spaced(question.asked.text)):
        return np.ones(len(inputs), dtype=bool)
    return inputs[:, candidate_features.NAMES.index("topic")] >= settings["attribute_topic_floor"]


def _first_and_close(ranked: NDArray[np.float64], settings: dict[str, float], family: str) -> NDArray[np.float64]:
    """Above 0: the best if it reaches the family's floor, and those with it that reach the lower one for company."""
    if ranked.max() < settings[f"{family}_floor"]:
        return np.full(len(ranked), -np.inf)
    lowest = max(settings[f"{family}_company_floor"], ranked.max() - settings[f"{family}_company_gap"])
    margins: NDArray[np.float64] = ranked - lowest
    margins[ranked.argmax()] = max(margins[ranked.argmax()], ranked.max() - settings[f"{family}_floor"] + 1e-6)
    return margins
