"""The best that an engine can do which takes only `n_max`, `n_min` and `p_min`.

Not a fit of the threshold vector: the triple that maximises the predicted rate under the same
costs and the same beliefs, over all triples of a grid.

With `π_i` the chance that token i passes `p_min` and `α_i = E[q_i; passes]`, independence over
positions gives closed forms. The engine drafts until a token fails or n_max is reached; with
exactly k tokens drafted it has paid `D(min(k+1, n_max))`, and verifies k of them, or none of them
if k < n_min. So with `A_k = E[S_1 + … + S_k; the first k pass]`,

    A_k = A_{k−1}·π_k + α_1⋯α_k
    E[N] = 1 + Σ_{n_min ≤ k < n_max} A_k·(1 − π_{k+1}) + A_{n_max}

Where slots share a batch, each stops by its own probabilities; its k tokens have the chance
`π_1⋯π_k·(1 − π_{k+1})`, and `SharedBatch` tells what a step of such slots costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autospec.tuning.shared import best_policy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autospec.tuning.cost import RoundCost, SharedBatch
    from autospec.tuning.stopping import Policy
    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]

P_MIN_GRID = tuple(round(0.05 * step, 2) for step in range(20))
N_MIN_GRID = (0, 1, 2, 3)
TIE = 1e-9
"""Rates that differ by less than this (relative) are equal up to rounding."""


@dataclass(frozen=True)
class Scalar:
    """A setting of the engine's three scalars and what it is predicted to give.

    Rates are tokens/s over all slots. `rate_low` and `rate_high` move costs and acceptance by
    one standard deviation each, both for the worse or both for the better. `loss_vs_vector` is
    the relative loss against the best threshold vector (`best_policy`); it can be negative only
    with `n_min` above 0: throwing a short draft away is an action that the vector does not have.
    """

    n_max: int
    n_min: int
    p_min: float
    rate: float
    ratio_vs_plain: float
    loss_vs_vector: float
    rate_low: float
    rate_high: float

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def scalar_rates(
    cost: RoundCost, survival: SurvivalModel, n_min: int = 0, p_min: float = 0.0
) -> Floats:
    """Predicted tokens/s for every `n_max` from 0 to `cost.n_max`, shape (K+1,).

    `n_max` 0 is live k = 0. Where `n_max < n_min` every draft is thrown away.
    """
    if n_min < 0 or not 0 <= p_min <= 1:
        raise ValueError("n_min is not negative, p_min lies within [0, 1]")
    n_max = cost.n_max
    if survival.n_max < n_max:
        raise ValueError(f"acceptance is known to position {survival.n_max}, not {n_max}")
    passing = survival.weight[:n_max] * (survival.p >= p_min)
    through = passing.sum(axis=1)
    alive = np.concatenate([[1.0], np.cumprod((passing * survival.q[:n_max]).sum(axis=1))])
    reach = np.concatenate([[1.0], np.cumprod(through)])
    gained, lost = np.zeros(n_max + 1), np.zeros(n_max + 1)
    for k in range(1, n_max + 1):
        gained[k] = gained[k - 1] * through[k - 1] + alive[k]
        missed = alive[k - 1] * through[k - 1] - alive[k]
        lost[k] = lost[k - 1] * through[k - 1] + cost.replay_ms[k - 1] * missed
    used = np.arange(n_max + 1) >= n_min
    tokens = np.where(used, gained, 0.0)
    cut = np.concatenate([1.0 - through, [0.0]])
    cut_tokens = np.concatenate([[0.0], np.cumsum(tokens * cut)[:-1]])
    total_tokens = 1.0 + cut_tokens + tokens
    if cost.shared is not None:
        total_ms = _shared_ms(cost.shared, reach, through, used)
        return np.asarray(1000.0 * cost.slots * total_tokens / total_ms)
    ms = np.where(used, cost.verify_ms, cost.verify_ms[0]) * reach + np.where(used, lost, 0.0)
    steps = np.concatenate([cost.draft_ms[1:], [0.0]])
    cut_ms = np.concatenate([[0.0], np.cumsum((ms + steps * reach) * cut)[:-1]])
    total_ms = cut_ms + ms + cost.draft_ms * reach
    return np.asarray(1000.0 * cost.slots * total_tokens / total_ms)


def _shared_ms(
    shared: SharedBatch, reach: Floats, through: Floats, used: NDArray[np.bool_]
) -> Floats:
    """Expected ms of a step for every n_max, (K+1,): `reach` (K+1,) is the chance that k tokens
    pass, `through` (K,) that token i does, and `used` tells whether k tokens are verified."""
    size = len(reach)
    stops = np.tile(np.concatenate([reach[:-1] * (1.0 - through), [0.0]]), (size, 1))
    kept = np.where(np.tri(size, k=-1, dtype=np.bool_), stops, 0.0) + np.diag(reach)
    thrown = np.where(used, 0.0, kept).sum(axis=1)
    kept = np.where(used, kept, 0.0)
    kept[:, 0] += thrown
    paying = np.where(np.tri(size, size - 1, k=-1, dtype=np.bool_), reach[:-1], 0.0)
    return shared.mean_ms(kept, paying)


def scalar_rate(
    cost: RoundCost, survival: SurvivalModel, n_max: int, n_min: int = 0, p_min: float = 0.0
) -> float:
    """Predicted tokens/s of one triple, exact under the model."""
    if not 0 <= n_max <= cost.n_max:
        raise ValueError(f"n_max {n_max} is outside 0..{cost.n_max}")
    return float(scalar_rates(cost, survival, n_min, p_min)[n_max])


def best_scalar(
    cost: RoundCost,
    survival: SurvivalModel,
    *,
    n_max: int | None = None,
    n_min: int | None = None,
    p_min: float | None = None,
    policy: Policy | None = None,
    tie: float = TIE,
) -> Scalar:
    """The triple of the best predicted rate; given values are pinned, the others searched.

    A larger p_min or n_min must gain more than `tie` (relative) to be taken.
    Searched are n_max in 1…K, n_min in 0…3 and p_min by 0.05; of equals the simplest wins (the
    smaller p_min, then n_min, then n_max). `policy` saves solving for the vector again.
    """
    if cost.n_max < 1:
        raise ValueError("a draft needs room for at least one token")
    if n_max is not None and not 1 <= n_max <= cost.n_max:
        raise ValueError(f"n_max {n_max} is outside 1..{cost.n_max}")
    lengths = np.arange(1, cost.n_max + 1)
    best, triple = 0.0, (1, 0, 0.0)
    for p in P_MIN_GRID if p_min is None else (p_min,):
        for least in N_MIN_GRID if n_min is None else (n_min,):
            allowed = lengths == n_max if n_max else lengths >= min(least, cost.n_max)
            rates = np.where(allowed, scalar_rates(cost, survival, least, p)[1:], 0.0)
            first = int(np.argmax(rates >= rates.max() * (1.0 - TIE)))
            if rates[first] > best * (1.0 + tie):
                best, triple = float(rates[first]), (first + 1, least, p)
    vector = policy or best_policy(cost, survival)
    low = scalar_rate(cost.shifted(1.0), survival.shifted(-1.0), *triple)
    high = scalar_rate(cost.shifted(-1.0), survival.shifted(1.0), *triple)
    return Scalar(
        *triple,
        rate=best,
        ratio_vs_plain=best / cost.plain_rate,
        loss_vs_vector=1.0 - best / vector.rate,
        rate_low=min(low, best),
        rate_high=max(high, best),
    )
