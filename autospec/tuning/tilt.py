"""Rounds tell the shape of acceptance, counters its level: bringing the two together.

A stock engine reports no probabilities while it serves, only how often token i of a draft was
accepted. Rounds recorded beforehand say how acceptance depends on the reported probability. The
user's text may be easier or harder than theirs: all acceptances are moved by one δ in log
odds, the most probable one given the counters and a normal prior,

    q'_im = σ(logit q_im + δ),   δ ~ N(0, TILT_SD²).

Under a setting (n_max, n_min, p_min) token i counts as accepted when tokens 1…i passed p_min
and were accepted. Given that token i−1 counted, token i does with chance

    c_i(δ) = Σ_{m: p_m ≥ p_min} w_im q'_im,

divided by Σ_{m: p_m ≥ p_min} w_im for i ≤ max(n_min, 1), since a draft shorter than that is not
verified and not counted. The counters are then a chain of binomials.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from autospec.tuning.calibration_map import EDGE, logit, sigmoid
from autospec.tuning.survival import DEPENDENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from autospec.tuning.observations import Counters
    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]

TILT_SD = 1.5
"""Prior spread of δ: acceptance 0.6 may as well turn out to be 0.25 or 0.87."""


LARGEST = 8.0
"""Bound of |δ|: beyond it every token is accepted, or none."""

_POINTS = 33
_PRECISION = 1e-6


def tilted(
    model: SurvivalModel, counters: Counters, *, n_max: int, n_min: int = 0, p_min: float = 0.0
) -> SurvivalModel:
    """`model` moved to what `counters` say, which were taken under the given setting.

    Without a single counted draft `model` comes back as it is. Raises ValueError for counts
    that cannot be: more tokens accepted at a position than at the one before.
    """
    reached = _reached(counters, min(n_max, model.n_max))
    if reached[0] == 0:
        return model
    passing = np.where(model.p >= p_min, model.weight, 0.0)[: len(reached) - 1]
    given = np.ones(len(passing))
    given[: max(n_min, 1)] = np.maximum(passing[: max(n_min, 1)].sum(axis=1), EDGE)
    odds = logit(model.q[: len(passing)])
    hits, misses = reached[1:] / DEPENDENCE, (reached[:-1] - reached[1:]) / DEPENDENCE

    def loss(delta: Floats) -> Floats:
        tilted_odds = odds[..., np.newaxis] + delta
        chance = np.sum(passing[..., np.newaxis] * sigmoid(tilted_odds), axis=1)
        chance = np.clip(chance / given[:, np.newaxis], EDGE * EDGE, 1.0 - EDGE * EDGE)
        fit: Floats = hits @ np.log(chance) + misses @ np.log1p(-chance)
        return (delta / TILT_SD) ** 2 / 2 - fit

    delta = _least(loss, -LARGEST, LARGEST)
    strength = model.strength.copy()
    strength[: len(passing)] += reached[:-1]
    return replace(
        model,
        q=np.clip(sigmoid(logit(model.q) + delta), EDGE, 1.0 - EDGE),
        strength=strength,
        observed=model.observed + counters.drafts,
        evidence=None,
    )


def _least(loss: Callable[[Floats], Floats], low: float, high: float) -> float:
    """Where `loss`, of many points at once, is least within [low, high]: a grid that closes in
    on its best point."""
    while True:
        grid = np.linspace(low, high, _POINTS)
        best = int(np.argmin(loss(grid)))
        if high - low < _PRECISION:
            return float(grid[best])
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, _POINTS - 1)])


def _reached(counters: Counters, n_max: int) -> Floats:
    """Drafts whose first i tokens counted as accepted, for i = 0…n_max: (n_max + 1,)."""
    counts = counters.per_position[:n_max]
    reached = np.zeros(n_max + 1)
    reached[0] = counters.drafts
    reached[1 : len(counts) + 1] = counts
    if np.any(np.diff(reached) > 0) or np.any(reached < 0):
        raise ValueError("no more drafts can be accepted up to a position than up to the last one")
    return reached
