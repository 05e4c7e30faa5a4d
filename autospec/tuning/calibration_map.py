"""From what a draft reports to the chance that the target accepts.

The probability p that a draft model gives its token is not the chance that the target agrees.
Two maps learn it from counts: a logistic one on any features, which needs little evidence, and
an isotonic one on top of the logistic score, which bends where the evidence says so. Which of
them predicts better is decided by log loss on outcomes that neither had seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

EDGE = 1e-3
"""No map promises more than 1 − EDGE or less than EDGE; it also keeps log loss finite."""


def logit(p: ArrayLike) -> Floats:
    """log(p / (1 − p)), with p kept within [EDGE, 1 − EDGE]."""
    inside = np.clip(np.asarray(p, dtype=np.float64), EDGE, 1.0 - EDGE)
    return np.log(inside) - np.log1p(-inside)


def sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -40.0, 40.0)))


@dataclass(frozen=True)
class LogisticPrior:
    """Independent normal beliefs about the coefficients: constant first, then one a feature."""

    mean: tuple[float, ...]
    sd: tuple[float, ...]


@dataclass(frozen=True)
class Logistic:
    """q = σ(c₀ + c·x)."""

    coefficients: tuple[float, ...]

    def score(self, features: Floats) -> Floats:
        """c₀ + c·x for `features` (n, d): (n,)."""
        coefficients = np.array(self.coefficients)
        scores: Floats = coefficients[0] + features @ coefficients[1:]
        return scores

    def __call__(self, features: Floats) -> Floats:
        return np.clip(sigmoid(self.score(features)), EDGE, 1.0 - EDGE)


@dataclass(frozen=True)
class Isotonic:
    """A non-decreasing map of a logistic score, linear between its knots."""

    base: Logistic
    knots: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, features: Floats) -> Floats:
        score = self.base.score(features)
        return np.clip(np.interp(score, self.knots, self.values), EDGE, 1.0 - EDGE)


CalibrationMap = Logistic | Isotonic


def fit_logistic(features: Floats, hits: Floats, trials: Floats, prior: LogisticPrior) -> Logistic:
    """The most probable coefficients for binomial counts under a normal prior (Newton).

    `features` (n, d); `hits` and `trials` (n,) are counts, fractions allowed (forgetting).
    The penalised likelihood is concave and its Hessian at least the prior's precision, so
    damped Newton steps always exist and end at the one maximum.
    """
    design = np.column_stack([np.ones(len(features)), features])
    mean = np.array(prior.mean)
    precision = 1.0 / np.array(prior.sd) ** 2

    def objective(c: Floats) -> float:
        x = design @ c
        likelihood = hits @ x - trials @ np.logaddexp(0.0, x)
        return float(likelihood - 0.5 * precision @ (c - mean) ** 2)

    c = mean.copy()
    value = objective(c)
    for _ in range(50):
        q = sigmoid(design @ c)
        gradient = design.T @ (hits - trials * q) - precision * (c - mean)
        hessian = (design.T * (trials * q * (1.0 - q))) @ design + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        scale = 1.0
        while (tried := objective(c + scale * step)) < value and scale > 1e-6:
            scale /= 2
        c = c + scale * step
        if abs(tried - value) <= 1e-10 * (1.0 + abs(value)):
            break
        value = tried
    return Logistic(tuple(float(x) for x in c))


def fit_isotonic(
    base: Logistic, features: Floats, hits: Floats, trials: Floats, *, pseudo_trials: float = 1.0
) -> Isotonic:
    """Isotonic regression of outcomes on the score of `base` (pool adjacent violators).

    Each distinct score also gets `pseudo_trials` whose outcome is what `base` says, so that a
    few lucky outcomes do not become certainty.
    """
    scores, where = np.unique(np.round(base.score(features), 9), return_inverse=True)
    expected = sigmoid(scores)
    n = np.bincount(where, weights=trials, minlength=len(scores)) + pseudo_trials
    k = np.bincount(where, weights=hits, minlength=len(scores)) + pseudo_trials * expected
    fitted = pooled(k / n, n)
    return Isotonic(base, tuple(map(float, scores)), tuple(map(float, fitted)))


def pooled(values: Floats, weights: NDArray[np.floating]) -> Floats:
    """The nearest rising sequence to `values` in weighted least squares, by pooling adjacent
    violators (Barlow et al., Statistical Inference under Order Restrictions, 1972).

    SciPy has it too, at 20 MB of a daemon's memory.
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while blocks and blocks[-1][0] >= mean:
            before, heavier, more = blocks.pop()
            mean = (before * heavier + mean * total) / (heavier + total)
            total, count = total + heavier, count + more
        blocks.append((mean, total, count))
    return np.repeat([mean for mean, _, _ in blocks], [count for _, _, count in blocks])


def log_loss(q: Floats, hits: Floats, trials: Floats) -> float:
    """Total −log likelihood of binomial outcomes under `q`, in nats."""
    inside = np.clip(q, EDGE, 1.0 - EDGE)
    return float(-(hits @ np.log(inside) + (trials - hits) @ np.log1p(-inside)))
