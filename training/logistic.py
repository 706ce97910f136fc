"""Ridge logistic regression by Newton steps. Deterministic: no random start, no sampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def fit(x: Array, y: Array, *, ridge: float, weights: Array | None = None, steps: int = 30) -> tuple[Array, float]:
    """Coefficients and intercept of the least weighted log loss plus `ridge` / 2 times the squared coefficients."""
    rows = np.column_stack([x, np.ones(len(x))])
    weights = np.ones(len(x)) if weights is None else weights
    penalty = np.full(rows.shape[1], ridge)
    penalty[-1] = 1e-6
    at = np.zeros(rows.shape[1])
    for _ in range(steps):
        p = probability(rows @ at)
        gradient = rows.T @ (weights * (p - y)) + penalty * at
        curvature = (rows * (weights * p * (1 - p) + 1e-9)[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        at = at - step
        if np.abs(step).max() < 1e-7:
            break
    return at[:-1], float(at[-1])


def probability(logit: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-np.clip(logit, -40, 40)))


def folds(groups: list[str], count: int) -> list[NDArray[np.bool_]]:
    """Masks of the held-out rows, a group never split, groups dealt in order of first appearance."""
    order = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    numbers = np.array([order[group] % count for group in groups])
    return [numbers == fold for fold in range(count)]
