"""Several slots that draft side by side: one batch, one rule, each slot stopping for itself.

`autospec.tuning.stopping` takes all slots to stop together: s slots that keep k tokens make one
batch of s·(k+1). In truth each slot stops by its own survival, so the target verifies
`Σ (k_j + 1)` tokens, whose jags are averaged out, and a draft step is only as dear as the slots
that still draft. What counts for one slot is what *it* adds to a step that the others share:

    D'(j) = Σ_{i ≤ j} E[d(B_i + 1) − d(B_i)],     B_i ~ Binomial(s−1, P(paid ≥ i))
    V'(k) = E[V(k + 1 + R)],                      R the tokens of the other s−1 slots

with `d(n)` a draft step of n slots (`d(0) = 0`) and `V(b)` the verification of b tokens. The rule
that is best against others who follow a given rule is a stopping problem in (D', V'): the others'
tokens, `n₀ = (s−1)·E[N]`, come with every step, and `max E[N + n₀ − λC] = 0` is
`max E[N − λ(C − n₀/λ)] = 0`, so costs less n₀/λ solve it. Best responses are repeated (λ and the
others' rule taken from the last one); every rule on the way is scored exactly, as all s slots
following it would do, and the best is kept. That is optimal person by person: no slot alone can
do better (R. Radner, "Team decision problems", 1962). Such optima are local: while others draft
on, one more step of one's own is nearly free. So the start is the best of the rules that stop
together after at most n tokens, n = 0…K.

Targets that replay after a rejection are not covered: their slots restore one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from autospec.tuning.cost import NO_OVERHEAD, DraftCost, RoundCost, RoundOverhead, round_cost
from autospec.tuning.stopping import Policy, best_launch, solve, solve_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autospec.tuning.chain import Chain
    from autospec.tuning.surface import CostSurface
    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]

RESPONSES = 6
"""Best responses that are tried at most; they stop at the first that gains less than GAIN."""

GAIN = 1e-4

LEAST_MS = 1e-6


def solve_shared(
    target: CostSurface,
    draft: DraftCost,
    survival: SurvivalModel,
    *,
    n_max: int,
    depth: float = 0.0,
    slots: int = 1,
    overhead: RoundOverhead = NO_OVERHEAD,
    limit_is_free: bool = False,
) -> Policy:
    """The policy for `slots` slots at `depth`, all of them following it.

    Rates are tokens/s over all slots. With one slot, or a draft that makes its block in one
    pass for all, this is `solve` on the round cost. `limit_is_free` tells that the engine can be
    given a smaller n_max for a round: the policy then has the best one, and its last token is
    included without another step.
    """
    cost = round_cost(target, draft, n_max=n_max, depth=depth, slots=slots, overhead=overhead)
    if slots == 1 or n_max == 0 or draft.kind == "block":
        return best_launch(cost, survival) if limit_is_free else solve(cost, survival)
    step = _Step.of(target, draft, cost, depth=depth, overhead=overhead)
    chain = survival.chain
    together = solve_table([cost.truncated(n) for n in range(n_max + 1)], survival)
    if not limit_is_free:
        together = [_capped(policy, n_max) for policy in together]
    best = max((step.play(policy, chain) for policy in together), key=_rate)
    others = best
    for _ in range(RESPONSES):
        others = step.play(solve(step.seen_by_one(others), survival), chain)
        if _rate(others) <= _rate(best) * (1 + GAIN):
            break
        best = others
    return best.policy


@dataclass(frozen=True, eq=False)
class _Play:
    """A rule that all slots follow; `kept` (K+1,) are the chances to keep k tokens."""

    policy: Policy
    kept: Floats

    @property
    def paying(self) -> Floats:
        """The chance that step i is paid (K,): every draft that gets that far pays it."""
        if not self.policy.drafts:
            return np.zeros(len(self.kept) - 1)
        return 1.0 - np.cumsum(self.kept)[:-1] + self.kept[:-1]


@dataclass(frozen=True, eq=False)
class _Step:
    """Times in ms of a step of s slots: `verify` (s·K+1,) of r drafted tokens in all of them
    together, `draft` (s+1,) a draft step in which n of them take part."""

    cost: RoundCost
    verify: Floats
    draft: Floats

    @classmethod
    def of(
        cls,
        target: CostSurface,
        draft: DraftCost,
        cost: RoundCost,
        *,
        depth: float,
        overhead: RoundOverhead,
    ) -> _Step:
        slots, n_max = cost.slots, cost.n_max
        batch = 1.0 + np.arange(slots * n_max + 1) / slots
        again = [draft.reevaluation(k + 1, depth, slots).value for k in range(n_max + 1)]
        verify = (
            target.steps(batch, depth, slots)[0]
            + np.interp(batch, np.arange(1, n_max + 2), again)
            + overhead.verify_fixed_ms
            + overhead.verify_token_ms * batch
        )
        steps = [draft.drafting(1, depth, n).value for n in range(1, slots + 1)]
        return cls(
            cost=cost,
            verify=np.maximum(verify, 0.05 * cost.plain_ms),
            draft=overhead.draft_factor * np.array([0.0, *steps]),
        )

    def play(self, policy: Policy, chain: Chain) -> _Play:
        """`policy` followed by every slot, with the rate that it then has."""
        slots = self.cost.slots
        kept, made = _outcome(policy, chain)
        play = _Play(policy, kept)
        mixed = _sum_of(kept, slots)
        ms = float(mixed @ self.verify[: len(mixed)]) + float(
            (_binomials(slots, play.paying) @ self.draft).sum()
        )
        return replace(
            play,
            policy=replace(
                policy,
                rate=1000.0 * slots * made / ms,
                plain_rate=self.cost.plain_rate,
                zero_rate=self.cost.zero_rate,
                mean_drafted=float(kept @ np.arange(len(kept))),
                mean_steps=float(play.paying.sum()),
                tokens_per_round=made,
            ),
        )

    def seen_by_one(self, others: _Play) -> RoundCost:
        """What a round costs one slot while the others play, less what their tokens are worth."""
        slots, n_max = self.cost.slots, others.policy.n_max
        rest = _sum_of(others.kept, slots - 1)
        verify = np.array([rest @ self.verify[k : k + len(rest)] for k in range(n_max + 1)])
        busy = _binomials(slots - 1, others.paying)
        own = np.cumsum(busy @ np.diff(self.draft))
        shared = float((busy @ self.draft[:-1]).sum())
        worth = (slots - 1) * others.policy.tokens_per_round * 1000.0 / others.policy.rate
        zeros = np.zeros(n_max + 1)
        return RoundCost(
            plain_ms=self.cost.plain_ms,
            draft_ms=np.concatenate([[0.0], np.maximum.accumulate(own)]),
            verify_ms=np.maximum(verify + shared - worth, LEAST_MS),
            spread_ms=zeros,
            replay_ms=zeros,
        )


def _capped(policy: Policy, n_max: int) -> Policy:
    """`policy` for a child that was launched with a larger `n_max`: never beyond its own."""
    beyond = (math.inf,) * (n_max - policy.n_max)
    return replace(policy, thresholds=policy.thresholds + beyond)


def _rate(play: _Play) -> float:
    return play.policy.rate


def _outcome(policy: Policy, chain: Chain) -> tuple[Floats, float]:
    """The chances to keep 0…K tokens, and the expected tokens of a round."""
    kept = np.zeros(policy.n_max + 1)
    mass, made = np.ones(1), 1.0
    for i, threshold in enumerate(policy.thresholds):
        reached = mass @ chain.moves[i]
        survival = chain.values[i + 1]
        mass = np.where(survival >= threshold, reached, 0.0)
        kept[i] = float(reached.sum() - mass.sum())
        made += float(mass @ survival)
    kept[-1] = float(mass.sum())
    return np.maximum(kept, 0.0), made


def _sum_of(chances: Floats, count: int) -> Floats:
    """Distribution of the sum of `count` independent draws from `chances`."""
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, chances)
    return total


def _binomials(count: int, chances: Floats) -> Floats:
    """Row i: the chances that 0…count of `count` slots do what each does with `chances[i]`."""
    n = np.arange(count + 1)
    ways = np.array([math.comb(count, k) for k in n], dtype=np.float64)
    p = np.clip(chances, 0.0, 1.0)[:, np.newaxis]
    table: Floats = ways * p**n * (1.0 - p) ** (count - n)
    return table
