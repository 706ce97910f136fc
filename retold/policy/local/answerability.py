"""Is the answer among the candidates at all? A question apart from which of them is best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retold.policy.local import candidate_features

NAMES = (
    "best", "second", "best_meaning", "best_shared", "best_cosine", "best_spoken", "weakest_of_best", "own_of_best",
    "other_beats_own", "other_beats_own_meaning", "date_of_best", "kind_missing_of_best", "turn_margin",
    "topic_of_best", "topic_weakest_of_best", "topic_shared_of_best", "best_topic", "best_topic_weakest",
    "name_missing_of_best", "other_beats_own_topic",
)  # fmt: skip

_AT = {name: column for column, name in enumerate(candidate_features.NAMES)}
_FAR = 6.0


def inputs(candidates: NDArray[np.float64], ranked: NDArray[np.float64], turn_margin: float) -> NDArray[np.float64]:
    """The features named in :data:`NAMES` over one turn's candidate inputs and ranker logits."""
    order = np.argsort(-ranked)
    best = candidates[order[0]]
    foreign = (candidates[:, _AT["other"]] + candidates[:, _AT["other_via_my"]]) > 0
    # The ranker already holds "somebody else" against a candidate, so the comparison is made without whom it is about.
    nearness = candidates[:, _AT["meaning"]] + candidates[:, _AT["spoken_cosine"]]
    words = candidates[:, _AT["meaning"]]
    return np.array([
        np.clip(ranked[order[0]], -_FAR, _FAR),
        np.clip(ranked[order[1]], -_FAR, _FAR) if len(ranked) > 1 else -_FAR,
        best[_AT["meaning"]],
        best[_AT["shared"]],
        best[_AT["cosine"]],
        best[_AT["spoken_cosine"]],
        best[_AT["weakest_word"]],
        best[_AT["own"]],
        _lead(nearness, foreign),
        _lead(words, foreign),
        best[_AT["same_date"]] - best[_AT["other_date"]],
        best[_AT["kind_missing"]],
        np.clip(turn_margin, -_FAR, _FAR),
        best[_AT["topic"]],
        best[_AT["topic_weakest"]],
        best[_AT["topic_shared"]],
        candidates[:, _AT["topic"]].max(),
        candidates[:, _AT["topic_weakest"]].max(),
        best[_AT["name_missing"]],
        _lead(candidates[:, _AT["topic"]], foreign),
    ])  # fmt: skip


def _lead(values: NDArray[np.float64], foreign: NDArray[np.bool_]) -> float:
    """How far the best record about somebody else is ahead of the best of the right person; 0 without either."""
    if foreign.all() or not foreign.any():
        return 0.0
    return float(values[foreign].max() - values[~foreign].max())
