"""Loads trained weights and refuses an embedder they were not trained for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retold.policy.ports import EmbedderIdentity


class WrongEmbedderError(ValueError):
    """The weights were trained on another embedder's vectors: every score would be noise."""


class UnreadableWeightsError(ValueError):
    """A weights file that this code cannot use: other features, other format. Train again."""


@dataclass(frozen=True)
class Head:
    """One logistic head: `score` is its logit, 0 meaning even odds on the training data."""

    coefficients: NDArray[np.float64]
    intercept: float

    def score(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The logit of one input, or of each row."""
        return np.asarray(inputs @ self.coefficients + self.intercept)


@dataclass(frozen=True)
class Weights:
    """A weights file: its header (what it was trained from, for which embedder), heads and settings."""

    name: str
    digest: str
    """First 12 hex digits of the SHA-256 of the file's bytes."""
    header: dict[str, Any]
    heads: dict[str, Head]
    settings: dict[str, float]
    word_counts: dict[str, float]
    """Lines of the authored corpus a word stem occurs in, common stems only; under "" the number of lines."""

    common_words: tuple[str, ...]
    """Words most frequent in the authored corpus: worth having vectors of before the first turn."""

    def require(self, identity: EmbedderIdentity) -> None:
        """Check the embedder. Its runtime and revision may differ: they move a score by less than a rounding step.

        Raises:
            WrongEmbedderError: another model or another dimension.
        """
        trained = self.header["embedder"]
        if (identity.model, identity.dimension) != (trained["model"], trained["dimension"]):
            raise WrongEmbedderError(
                f"{self.name} weights were trained for {trained['model']} with {trained['dimension']} dimensions,"
                f" but the embedder is {identity.model} with {identity.dimension}: use that model, or run"
                " `python -m training.train_local` with this one"
            )


def load(name: str, *, features: Mapping[str, tuple[str, ...]]) -> Weights:
    """The packaged weights `name`, checked against the feature names this code computes, head by head.

    Raises:
        UnreadableWeightsError: the file has other heads or other features.
    """
    raw = (resources.files("retold.policy.local") / "weights" / f"{name}.json").read_bytes()
    return parse(name, raw, features=features)


def parse(name: str, raw: bytes, *, features: Mapping[str, tuple[str, ...]]) -> Weights:
    held = json.loads(raw)
    heads = {}
    for head, names in features.items():
        stored = held["heads"].get(head)
        if stored is None or tuple(stored["features"]) != names:
            raise UnreadableWeightsError(
                f"weights/{name}.json: head {head!r} has other features than this code:"
                " run `python -m training.train_local`"
            )
        coefficients = np.array([*stored.get("vector", ()), *stored["coefficients"]], dtype=np.float64)
        heads[head] = Head(coefficients, float(stored["intercept"]))
    return Weights(
        name=name,
        digest=hashlib.sha256(raw).hexdigest()[:12],
        header=held["header"],
        heads=heads,
        settings={key: float(value) for key, value in held["settings"].items()},
        word_counts={word: float(count) for word, count in held.get("word_counts", {}).items()},
        common_words=tuple(held.get("common_words", ())),
    )
