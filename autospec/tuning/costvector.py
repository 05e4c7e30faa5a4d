"""The threshold vector as an engine of llama.cpp pull request 17034 takes it.

That engine reads relative costs `y_0, y_1, …` from the environment variable GGML_BATCH_COSTS and
includes token i while the product of the *reported* probabilities `r_i = p_1·…·p_i` is at least
`y_i`. Its author fills in measured costs a token. Here the same vector carries the best
thresholds on r that costs and beliefs allow: 0 for "always", `NEVER` for "never".

r is not survival; what it tells of it is `E[S_i | r_i]`. With that in place of S_i the backward
induction of `stopping` gives a threshold a position, and the rate of these thresholds is then
computed exactly, carrying the mass and the survival of every r forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autospec.tuning.chain import Chain
from autospec.tuning.shared import best_policy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autospec.tuning.cost import RoundCost
    from autospec.tuning.stopping import Policy
    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]

NEVER = 2.0


@dataclass(frozen=True)
class CostVector:
    """`values` (K+1,), the first 1; the predicted tokens/s, and the loss against our vector."""

    values: tuple[float, ...]
    rate: float
    loss_vs_vector: float

    @property
    def environment(self) -> str:
        """What GGML_BATCH_COSTS is set to."""
        return ",".join(f"{value:.6g}" for value in self.values)


def cost_vector(
    cost: RoundCost, survival: SurvivalModel, *, policy: Policy | None = None
) -> CostVector:
    """The best vector for drafts of up to `cost.n_max` tokens.

    Costs of replays after a partial rejection are left out of the choice, not out of the rate.
    `policy` saves solving for our own vector again.
    """
    problem = _Reported.of(cost, survival)
    simple = [np.full(cost.n_max, NEVER), np.zeros(cost.n_max)]
    thresholds = max(simple, key=problem.evaluate)
    best = problem.evaluate(thresholds)
    while (rate := problem.evaluate(tried := problem.thresholds(best))) > best * (1.0 + 1e-9):
        best, thresholds = rate, tried
    per_second = 1000.0 * cost.slots * best
    vector = policy or best_policy(cost, survival)
    return CostVector(
        values=(1.0, *map(float, thresholds)),
        rate=per_second,
        loss_vs_vector=1.0 - per_second / vector.rate,
    )


def rate_of_costs(cost: RoundCost, survival: SurvivalModel, values: tuple[float, ...]) -> float:
    """Predicted tokens/s of an engine that is given `values` (K+1,), whoever filled them in."""
    if len(values) <= cost.n_max:
        raise ValueError(f"a vector of {cost.n_max + 1} costs is needed")
    thresholds = np.array(values[1 : cost.n_max + 1])
    return 1000.0 * cost.slots * _Reported.of(cost, survival).evaluate(thresholds)


@dataclass(frozen=True, eq=False)
class _Reported:
    """Products of reported probabilities; `alive` moves their mass times survival."""

    cost: RoundCost
    chain: Chain
    alive: Chain

    @classmethod
    def of(cls, cost: RoundCost, survival: SurvivalModel) -> _Reported:
        q, weight = survival.q[: cost.n_max], survival.weight[: cost.n_max]
        factors = np.broadcast_to(survival.p, q.shape)
        return cls(cost, Chain.of(factors, weight), Chain.of(factors, weight * q))

    def stop(self, i: int) -> float:
        """Cost in ms of stopping at position i, with i−1 tokens."""
        return self.cost.kept(i - 1)

    def evaluate(self, thresholds: Floats) -> float:
        """Tokens/ms of a rule."""
        tokens, ms = 1.0, 0.0
        mass, alive = np.ones(1), np.ones(1)
        for i, threshold in enumerate(thresholds, start=1):
            shown = mass @ self.chain.moves[i - 1]
            through = alive @ self.chain.moves[i - 1]
            right = alive @ self.alive.moves[i - 1]
            include = self.chain.values[i] >= threshold
            ms += float(shown[~include].sum()) * self.stop(i)
            ms += float((through - right)[include].sum()) * float(self.cost.replay_ms[i - 1])
            mass, alive = np.where(include, shown, 0.0), np.where(include, right, 0.0)
            tokens += float(alive.sum())
        ms += float(mass.sum()) * self.cost.kept(self.cost.n_max)
        return tokens / ms

    def thresholds(self, rate: float) -> Floats:
        """The best thresholds on r at `rate`, with E[S_i | r_i] of drafts that never stop."""
        mass, alive = [np.ones(1)], [np.ones(1)]
        for moves, alive_moves in zip(self.chain.moves, self.alive.moves, strict=True):
            mass.append(mass[-1] @ moves)
            alive.append(alive[-1] @ alive_moves)
        found = np.full(self.cost.n_max, NEVER)
        tail = np.full(len(mass[-1]), -rate * self.cost.kept(self.cost.n_max))
        for i in range(self.cost.n_max, 0, -1):
            values, reached = self.chain.values[i], mass[i] > 0
            survival = np.interp(values, values[reached], alive[i][reached] / mass[i][reached])
            stop = -rate * self.stop(i)
            worth = np.cumsum((mass[i] * (survival + tail - stop))[::-1])[::-1]
            first = int(np.argmax(worth))
            include = np.arange(len(values)) >= first
            if worth[first] < 0:
                include[:] = False
            elif first > 0:
                found[i - 1] = (values[first - 1] + values[first]) / 2
            else:
                found[i - 1] = 0.0
            tail = self.chain.moves[i - 1] @ np.where(include, survival + tail, stop)
        return found
