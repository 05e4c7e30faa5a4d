"""When to stop drafting: the optimal policy for measured costs and believed acceptance.

**Objective.** Rounds follow each other; the long-run rate of a policy is E[N]/E[C] with N tokens
and C ms a round (renewal-reward theorem). The best rate λ* is the root of
`F(λ) = max E[N − λ·C]`, found by Dinkelbach's iteration (W. Dinkelbach, 1967, "On nonlinear
fractional programming"): solve for λ, set λ to E[N]/E[C] of the solution, repeat. The iteration
rises monotonically and converges superlinearly.

**Actions.** The engine couples two decisions. At position i its draft step is paid and p_i is
seen; one may stop with i−1 tokens, paying `D(i) + V(i−1)`, or include token i and with it pay
the step of i+1. Only token K = n_max is included without another step. Before the first step
one may leave drafting altogether (k = 0 live), which pays `V(0)`, where V holds the draft's
re-evaluation: that is not plain decoding.

**Inner problem.** With W_i(s) the best E[N − λC] still to come once i tokens with cumulative
survival s are included,

    W_K(s)     = −λ·(D(K) + V(K))
    W_{i−1}(s) = E_q max( −λ·(D(i) + V(i−1)),  s·q + W_i(s·q) )

and F(λ) = max(1 + W_0(1), 1 − λ·V(0)). V may be jagged: the maximum looks over all later
positions. Each W_i is convex and not decreasing in s, so the rule is one threshold a position
on the cumulative survival: include i iff s_i ≥ θ_i, the root of `s + W_i(s) + λ(D(i)+V(i−1))`.

**Replays.** Where a target cannot drop a suffix, a rejection after a accepted tokens pays
`replay_ms[a]`. Including token i then costs `(s_{i−1} − s_i)·replay_ms[i−1]` more, which is no
longer a function of s_i alone; the rule takes `s_{i−1} ≈ s_i/a_i`, and the rate that is reported
is the exact one of the thresholds that result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from autospec.tuning.chain import Chain
    from autospec.tuning.cost import RoundCost
    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]

SETTLED = 1e-5
"""Dinkelbach's iteration ends at a step that gains less than this (relative): it converges
quadratically, and the last pass is one step more."""

EQUAL = 1e-12
"""Gains under this (relative) are rounding; of equal rules the one that drafts less is taken."""


@dataclass(frozen=True)
class Policy:
    """The optimal rule: include token i iff the cumulative survival is at least `thresholds[i−1]`.

    A threshold is 0 for "always" and inf for "never". Rates are tokens per second over all slots
    of the round: `rate` of this rule with the draft loaded, `zero_rate` of never drafting with
    the draft loaded, `plain_rate` without a draft. A round makes `tokens_per_round` tokens in
    each slot, verifies `mean_drafted` drafted ones and pays `mean_steps` draft steps for them.
    `limit`: the engine is told beforehand to draft no more than this, so that the last of them is
    included without another step; None where n_max is the only limit.
    """

    thresholds: tuple[float, ...]
    rate: float
    plain_rate: float
    zero_rate: float
    mean_drafted: float
    mean_steps: float
    tokens_per_round: float
    limit: int | None = None

    @property
    def n_max(self) -> int:
        return len(self.thresholds)

    @property
    def drafts(self) -> bool:
        """Whether any drafting is worth its cost once the draft is loaded."""
        return self.mean_steps > 0

    def to_json(self) -> dict[str, Any]:
        """Plain values; a threshold of None stands for "never"."""
        return {
            "thresholds": [t if math.isfinite(t) else None for t in self.thresholds],
            "rate": self.rate,
            "plain_rate": self.plain_rate,
            "zero_rate": self.zero_rate,
            "mean_drafted": self.mean_drafted,
            "mean_steps": self.mean_steps,
            "tokens_per_round": self.tokens_per_round,
            "limit": self.limit,
        }


def solve(cost: RoundCost, survival: SurvivalModel) -> Policy:
    """The policy of the best long-run rate for a child launched with `n_max = cost.n_max`.

    Raises ValueError when `survival` knows fewer positions than `cost`.
    """
    return solve_table([cost], survival)[0]


def solve_table(costs: Sequence[RoundCost], survival: SurvivalModel) -> list[Policy]:
    """`solve` for many costs under one belief, in one pass over the positions.

    Time grows linearly with positions and with costs.
    """
    if not costs:
        return []
    n_max = max(cost.n_max for cost in costs)
    if survival.n_max < n_max:
        raise ValueError(f"acceptance is known to position {survival.n_max}, not {n_max}")
    problem = _Problem.of(costs, survival, n_max)
    rate = problem.start()
    while True:
        tokens, ms = problem.solve(rate)[0]
        better = np.maximum(np.maximum(tokens / ms, 1.0 / problem.skip), rate)
        gained, rate = np.max(better / rate - 1.0), better
        if gained <= SETTLED:
            break
    root, thresholds = problem.solve(rate, counting=True)
    return [
        _policy(cost, root[:, column], thresholds[: cost.n_max, column])
        for column, cost in enumerate(costs)
    ]


def _policy(cost: RoundCost, root: Floats, thresholds: Floats) -> Policy:
    tokens, ms, drafted, steps = (float(value) for value in root)
    rate = 1000.0 * cost.slots * tokens / ms
    if rate <= cost.zero_rate * (1.0 + EQUAL):
        never = (math.inf,) * cost.n_max
        return Policy(never, cost.zero_rate, cost.plain_rate, cost.zero_rate, 0.0, 0.0, 1.0)
    return Policy(
        thresholds=tuple(float(t) for t in thresholds),
        rate=rate,
        plain_rate=cost.plain_rate,
        zero_rate=cost.zero_rate,
        mean_drafted=drafted,
        mean_steps=steps,
        tokens_per_round=tokens,
    )


@dataclass(frozen=True, eq=False)
class _Problem:
    """T costs as arrays, padded to the largest n_max = K.

    `n_max` (T,); `stop` (K, T) is the cost of stopping at position i, `end` (T,) of a full
    draft, `skip` (T,) of not drafting; `replay` (K, T) is what a rejection of token i costs;
    `means` (K,) are the a_i.
    """

    chain: Chain
    n_max: NDArray[np.intp]
    stop: Floats
    end: Floats
    skip: Floats
    replay: Floats
    means: Floats

    @classmethod
    def of(cls, costs: Sequence[RoundCost], survival: SurvivalModel, n_max: int) -> _Problem:
        shape = (n_max, len(costs))
        stop, replay = np.full(shape, np.inf), np.zeros(shape)
        for column, cost in enumerate(costs):
            stop[: cost.n_max, column] = cost.draft_ms[1:] + cost.verify_ms[:-1]
            replay[: cost.n_max, column] = cost.replay_ms[:-1]
        return cls(
            chain=survival.chain,
            n_max=np.array([cost.n_max for cost in costs], dtype=np.intp),
            stop=stop,
            end=np.array([cost.draft_ms[-1] + cost.verify_ms[-1] for cost in costs]),
            skip=np.array([cost.verify_ms[0] for cost in costs]),
            replay=replay,
            means=survival.means[:n_max],
        )

    def start(self) -> Floats:
        """The best rate (tokens/ms) of all fixed lengths: a policy, hence a lower bound."""
        survival = np.concatenate([[1.0], np.cumprod(self.means)])
        tokens = np.cumsum(survival)[:, None]
        ms = np.vstack([self.stop, np.full_like(self.end, np.inf)[None]])
        ms[self.n_max, np.arange(len(self.end))] = self.end
        ms[1:] += np.cumsum((survival[:-1] - survival[1:])[:, None] * self.replay, axis=0)
        return np.asarray(np.maximum((tokens / ms).max(axis=0), 1.0 / self.skip))

    def solve(self, rate: Floats, *, counting: bool = False) -> tuple[Floats, Floats]:
        """Backward induction at `rate` (T,) tokens/ms, for drafts that are not skipped.

        Returns the expected (tokens, ms) a round, (2, T); with `counting` (tokens, ms, drafted,
        steps), (4, T), and the thresholds (K, T).
        """
        positions, count = self.stop.shape
        thresholds = np.full((positions, count), np.inf)
        full = np.stack([np.zeros(count), self.end, self.n_max, self.n_max])
        full = full[: 4 if counting else 2]
        tail = np.broadcast_to(full, (len(self.chain.values[positions]), *full.shape)).copy()
        stop = np.zeros_like(full)
        for i in range(positions, 0, -1):
            s, moves, lost = self.chain.values[i], self.chain.moves[i - 1], self.replay[i - 1]
            running = self.n_max >= i
            stop[1], stop[2:] = np.where(running, self.stop[i - 1], 0.0), i
            stop[2:3] -= 1
            tail[:, 0] += s[:, None]
            gain = tail[:, 0] - rate * (tail[:, 1] - stop[1])
            if lost.any():
                before = np.minimum(1.0, s / max(self.means[i - 1], EQUAL))
                gain -= rate * (before - s)[:, None] * lost
            include = gain > EQUAL * (1.0 + rate * stop[1])
            if lost.any():
                include = np.logical_and.accumulate(include[::-1])[::-1]
            if counting:
                thresholds[i - 1] = _crossing(s, gain, include)
            chosen = np.where(include[:, None], tail, stop)
            tail = (moves @ chosen.reshape(len(s), -1)).reshape(-1, *full.shape)
            if lost.any():
                taken = include.astype(np.float64)
                before = self.chain.values[i - 1][:, None] * (moves @ taken)
                tail[:, 1] += lost * (before - moves @ (taken * s[:, None]))
            tail[:, :, ~running] = full[:, ~running]
        tail[:, 0] += 1.0
        return tail[0], thresholds


def _crossing(s: Floats, gain: Floats, include: NDArray[np.bool_]) -> Floats:
    """Where `gain` (n, T), rising over `s` (n,), reaches zero: 0 for always, inf for never."""
    first = np.argmax(include, axis=0)
    below = np.maximum(first - 1, 0)
    columns = np.arange(gain.shape[1])
    low, high = gain[below, columns], gain[first, columns]
    share = np.divide(-low, high - low, out=np.ones_like(low), where=high > low)
    found = s[below] + np.clip(share, 0.0, 1.0) * (s[first] - s[below])
    found = np.where(first == 0, 0.0, found)
    return np.asarray(np.where(include.any(axis=0), found, np.inf))
