"""The gap planner without a generative model: two logistic heads over one sentence vector and the turn's wording.

One head knows turns that ask for something said before or about the people and work around the user, the other turns
whose best answer depends on a standing preference. Either may fire; each is set to fire on about one in a hundred
ordinary turns of the authored corpus. Weights: `weights/planner.json`, trained by `python -m training.train_local`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import RetrievalCategory
from retold.contracts.stages import ProfileBlock, ProposedGap
from retold.policy.local import queries, turn_features, weights
from retold.policy.ports import Embedder, GapDecision

_FEATURES = {"recall": turn_features.NAMES, "preference": turn_features.NAMES}


class TurnHeads:
    """Scores of a turn: how much it asks for something stored. Shared by planner and judge."""

    def __init__(self, embedder: Embedder) -> None:
        """
        Raises:
            WrongEmbedderError: the weights belong to another embedding model; the message names both.
        """
        self.weights = weights.load("planner", features=_FEATURES)
        self.weights.require(embedder.identity)

    def margins(self, turn: str, vector: NDArray[np.float32]) -> tuple[float, float]:
        """How far above its threshold each head is, in logits: (recall, preference)."""
        inputs = turn_features.turn_inputs(turn, vector, self.weights.settings["vector_scale"])
        recall, preference = (
            float(self.weights.heads[head].score(inputs)) - self.weights.settings[f"{head}_threshold"]
            for head in ("recall", "preference")
        )
        return recall, preference


class LocalGapPlanner:
    """Implements `GapPolicy` with an embedder instead of a generative model. One embedding call a turn.

    `public_context` and profile do not silence it: whether they already hold the answer is judged with the candidates
    at hand, where it can be seen, and a search that finds only what is known costs no answer.
    """

    def __init__(self, embedder: Embedder) -> None:
        """
        Raises:
            WrongEmbedderError: the weights belong to another embedding model; the message names both.
        """
        self._embedder = embedder
        self._heads = TurnHeads(embedder)

    @property
    def identity(self) -> str:
        """Which planner decides, for bundles and decision rows: `local-planner/<hash of the weights>`."""
        return f"local-planner/{self._heads.weights.digest}"

    async def plan(
        self,
        turn: str,
        public_context: str | None,
        ambient_profile: ProfileBlock,
        inventory: Sequence[RetrievalCategory],
    ) -> GapDecision:
        """Up to three gaps; none when nothing is stored or the turn answers itself."""
        if not inventory:
            return GapDecision()
        opening = queries.opening_question(turn)
        texts = [turn] if opening is None else [turn, opening]
        vectors = await self._embedder.embed_queries(texts)
        margins = [self._heads.margins(text, vector) for text, vector in zip(texts, vectors, strict=True)]
        recall, preference = (max(each) for each in zip(*margins, strict=True))
        if max(recall, preference) <= 0:
            return GapDecision()
        prefers = preference > 0 and preference > recall
        asked = [turn] if prefers else queries.parts(turn)
        return GapDecision(
            gaps=tuple(
                ProposedGap(category=queries.category(each, prefers=prefers).value, query=queries.query(each))
                for each in asked
            )
        )
