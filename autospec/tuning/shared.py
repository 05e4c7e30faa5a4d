"""Several slots that draft side by side: one batch, one rule, each slot stopping for itself.

`autospec.tuning.stopping` takes all slots to stop together: s slots that keep k tokens make one
batch of s·(k+1). In truth each slot stops by its own survival, so the target verifies
`Σ (k_j + 1)` tokens, whose jags are averaged out, and a draft step is only as dear as the slots
that still draft (`SharedBatch`). What counts for one slot is what *it* adds to a step that the
others share:

    D'(j) = Σ_{i ≤ j} E[d(B_i + 1) − d(B_i)],     B_i ~ Binomial(s−1, P(paid ≥ i))
    V'(k) = E[V(k + 1 + R)],                      R the tokens of the other s−1 slots

with `d(n)` a draft step of n slots (`d(0) = 0`) and `V(b)` the verification of b tokens. The rule
that is best against others who follow a given rule is a stopping problem in (D', V'): the others'
tokens, `n₀ = (s−1)·E[N]`, come with every step, and `max E[N + n₀ − λC] = 0` is
`max E[N − λ(C − n₀/λ)] = 0`, so costs less n₀/λ solve it. Best responses are repeated (λ and the
others' rule taken from the last one); every rule on the way is scored exactly, as all s slots
following it would do, and the best is kept. That is optimal person by person: no slot alone can
do better (R. Radner, "Team decision problems", 1962). Such optima are local: while others draft
on, one more step of one's own is nearly free. So the start is the best of many rules: to keep
exactly n tokens, n = 0…K; to stop together; and the rule in force, where there is one.

Where no batch is shared (one slot, block drafts, targets that replay after a rejection, whose
slots restore one by one) all of this is `stopping` on the costs of slots that stop together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from autospec.tuning.cost import RoundCost, SharedBatch, binomials, sums
from autospec.tuning.stopping import EQUAL, Policy, solve_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from autospec.tuning.chain import Chain
    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]

Cell = TypeVar("Cell")
"""What a table is over; in the daemon (busy slots, depth in tokens)."""

RESPONSES = 6
"""Best responses that are tried at most; they stop at the first that gains less than GAIN."""

GAIN = 1e-3

LENGTHS = 3
"""So many of the fixed lengths, the best ones, become limits under which a rule is looked for."""

FIRST = 4
"""So many starts, the best ones, are responded to; then only the best response goes on."""

LEAST_MS = 1e-6


def best_policy(cost: RoundCost, survival: SurvivalModel) -> Policy:
    """The best policy of all, over the n_max that the engine is given too (`limit`)."""
    return policy_table({(): cost}, survival, limit_is_free=True)[()]


def policy_table(
    costs: Mapping[Cell, RoundCost],
    survival: SurvivalModel,
    *,
    limit_is_free: bool = False,
    start: Mapping[Cell, Policy] | None = None,
) -> dict[Cell, Policy]:
    """The best policy for each cell of `costs` under one belief; rates are over all slots.

    `costs` come from `round_cost`, which knows what a batch costs whose slots stop apart.
    `limit_is_free` tells that the engine can be given a smaller n_max for a round (the live policy
    of a sole draft model): a policy then has the best one, and its last token is included without
    another step; its thresholds are inf beyond. Every policy has as many thresholds as its cost
    has positions.

    `start` is the table in force, if any. Where beliefs have only moved since, its rules are
    where the search goes on from, which takes a fraction of the time of a search from nothing.
    Raises ValueError when `survival` knows fewer positions than a cost.
    """
    apart = {cell: cost for cell, cost in costs.items() if cost.shared and cost.n_max}
    alone = {cell: cost for cell, cost in costs.items() if cell not in apart}
    found = _stop_together(alone, survival, start or {}, limit_is_free=limit_is_free)
    games = [
        _Game(cost, cost.shared, survival, (start or {}).get(cell))
        for cell, cost in apart.items()
        if cost.shared
    ]
    plays = _best_plays(games, survival, limit_is_free=limit_is_free)
    found |= {cell: play.policy for cell, play in zip(apart, plays, strict=True)}
    return {cell: found[cell] for cell in costs}


def _stop_together(
    costs: Mapping[Cell, RoundCost],
    survival: SurvivalModel,
    start: Mapping[Cell, Policy],
    *,
    limit_is_free: bool,
) -> dict[Cell, Policy]:
    """The best policy of each cell whose slots stop together; with `start` of limits near its."""
    limits = []
    for cell, cost in costs.items():
        n_max = cost.n_max
        allowed = list(range(n_max + 1)) if limit_is_free else [n_max]
        if limit_is_free and cell in start:
            near = _limit_of(start[cell], n_max)
            allowed = sorted({max(near - 1, 0), near, min(near + 1, n_max), n_max})
        limits += [(cell, n) for n in allowed]
    solved = solve_table([costs[cell].truncated(n) for cell, n in limits], survival)
    best: dict[Cell, Policy] = {}
    for (cell, n), policy in zip(limits, solved, strict=True):
        if cell not in best or policy.rate > best[cell].rate * (1.0 + EQUAL):
            best[cell] = _padded(policy, costs[cell].n_max, n if limit_is_free else None)
    return best


@dataclass(frozen=True, eq=False)
class _Play:
    """A rule that all slots follow, and what comes of it.

    `kept` (K+1,) are the chances that a slot keeps k tokens, `paying` (K,) those that it pays
    draft step i+1; `limit` is the n_max that the engine was given.
    """

    policy: Policy
    kept: Floats
    paying: Floats

    @property
    def limit(self) -> int:
        return len(self.paying)


@dataclass(frozen=True, eq=False)
class _Game:
    """One cell: its costs, the belief, and the rule in force if there is one."""

    cost: RoundCost
    shared: SharedBatch
    survival: SurvivalModel
    start: Policy | None

    def lengths(self) -> list[int]:
        """The fixed lengths with the best rates, the best first, and 0."""
        k = np.arange(self.cost.n_max + 1)
        tokens = np.cumsum([1.0, *self.survival.survival()[: self.cost.n_max]])
        ms = self.shared.verify_ms[k * self.cost.slots] + k * self.shared.draft_ms[-1]
        best = np.argsort(-tokens / ms, kind="stable")[:LENGTHS].tolist()
        return list(dict.fromkeys([*best, 0]))

    def rules(self) -> list[tuple[Policy, int]]:
        """Rules of fixed length, and the one in force, each with the n_max that suits it."""
        fixed = [(_length(n, self.cost.n_max), n) for n in self.lengths()]
        return (
            [*fixed, (self.start, _limit_of(self.start, self.cost.n_max))] if self.start else fixed
        )

    def limits(self) -> list[int]:
        """The n_max under which rules of slots that stop together are worth a try."""
        if self.start:
            return [_limit_of(self.start, self.cost.n_max)]
        return sorted({*self.lengths(), self.cost.n_max})

    def plays(self, rules: Sequence[tuple[Policy, int]]) -> list[_Play]:
        """Rules, each under a limit, followed by every slot, with the rates that they then have."""
        n_max = self.cost.n_max
        thresholds = np.array([_padded(rule, n_max).thresholds[:n_max] for rule, _ in rules])
        for row, (rule, limit) in zip(thresholds, rules, strict=True):
            row[limit if rule.drafts else 0 :] = math.inf
        kept, made = _outcomes(thresholds, self.survival.chain)
        steps = np.array([[limit if rule.drafts else 0] for rule, limit in rules])
        reached = np.cumsum(kept[:, ::-1], axis=1)[:, :0:-1]
        paying = np.where(np.arange(n_max) < steps, reached, 0.0)
        ms = self.shared.mean_ms(kept, paying)
        return [
            _Play(
                policy=Policy(
                    thresholds=tuple(thresholds[row].tolist()),
                    rate=1000.0 * self.cost.slots * float(made[row] / ms[row]),
                    plain_rate=self.cost.plain_rate,
                    zero_rate=self.cost.zero_rate,
                    mean_drafted=float(kept[row] @ np.arange(n_max + 1)),
                    mean_steps=float(paying[row].sum()),
                    tokens_per_round=float(made[row]),
                    limit=limit if limit < n_max else None,
                ),
                kept=kept[row, : limit + 1],
                paying=paying[row, :limit],
            )
            for row, (_, limit) in enumerate(rules)
        ]

    def seen_by_one(self, others: _Play) -> RoundCost:
        """What a round costs one slot while the others play, less what their tokens are worth."""
        slots, limit = self.cost.slots, others.limit
        rest = sums(others.kept[np.newaxis], slots - 1)[0]
        verify = np.correlate(self.shared.verify_ms[: limit + len(rest)], rest)
        busy = binomials(slots - 1, others.paying)
        own = np.cumsum(busy @ np.diff(self.shared.draft_ms))
        shared = float((busy @ self.shared.draft_ms[:-1]).sum())
        worth = (slots - 1) * others.policy.tokens_per_round * 1000.0 / others.policy.rate
        zeros = np.zeros(limit + 1)
        return RoundCost(
            plain_ms=self.cost.plain_ms,
            draft_ms=np.maximum.accumulate(np.concatenate([[0.0], own])),
            verify_ms=np.maximum(verify + shared - worth, LEAST_MS),
            spread_ms=zeros,
            replay_ms=zeros,
        )


def _best_plays(
    games: Sequence[_Game], survival: SurvivalModel, *, limit_is_free: bool
) -> list[_Play]:
    """Best responses in all cells at once, from the best of many starts in each."""
    limits = [game.limits() for game in games]
    together = iter(
        solve_table(
            [game.cost.truncated(n) for game, ns in zip(games, limits, strict=True) for n in ns],
            survival,
        )
    )
    best, answered = [], []
    for game, ns in zip(games, limits, strict=True):
        rules = [*game.rules(), *((next(together), n) for n in ns)]
        if not limit_is_free:
            rules = [(rule, game.cost.n_max) for rule, _ in rules]
        plays = sorted(game.plays(rules), key=_rate, reverse=True)
        best.append(plays[0])
        answered.append(plays[: FIRST if game.start is None else 1])
    open_ = list(range(len(games)))
    for _ in range(RESPONSES):
        others = [(i, play) for i in open_ for play in answered[i]]
        responses = solve_table([games[i].seen_by_one(play) for i, play in others], survival)
        heard: dict[int, list[tuple[Policy, int]]] = {i: [] for i in open_}
        for (i, play), response in zip(others, responses, strict=True):
            heard[i].append((response, play.limit))
        open_ = []
        for i, rules in heard.items():
            answered[i] = [max(games[i].plays(rules), key=_rate)]
            if _rate(answered[i][0]) > _rate(best[i]) * (1.0 + GAIN):
                best[i] = answered[i][0]
                open_.append(i)
        if not open_:
            break
    return best


def _rate(play: _Play) -> float:
    return play.policy.rate


def _outcomes(thresholds: Floats, chain: Chain) -> tuple[Floats, Floats]:
    """For rules (R, K): the chances to keep 0…K tokens (R, K+1), and tokens of a round (R,)."""
    rules, positions = thresholds.shape
    kept, made = np.zeros((rules, positions + 1)), np.ones(rules)
    mass = np.ones((rules, 1))
    for i in range(positions):
        reached = mass @ chain.moves[i]
        survival = chain.values[i + 1]
        mass = np.where(survival >= thresholds[:, i : i + 1], reached, 0.0)
        kept[:, i] = reached.sum(axis=1) - mass.sum(axis=1)
        made += mass @ survival
    kept[:, -1] = mass.sum(axis=1)
    return np.maximum(kept, 0.0), made


def _limit_of(policy: Policy, n_max: int) -> int:
    return n_max if policy.limit is None else min(policy.limit, n_max)


def _length(tokens: int, n_max: int) -> Policy:
    """The rule to keep exactly `tokens`."""
    thresholds = (0.0,) * tokens + (math.inf,) * (n_max - tokens)
    return Policy(thresholds, 0.0, 0.0, 0.0, tokens, tokens, tokens + 1.0)


def _padded(policy: Policy, n_max: int, limit: int | None = None) -> Policy:
    """`policy` for a child of this `n_max`: nothing is kept beyond its own."""
    beyond = (math.inf,) * (n_max - policy.n_max)
    limit = policy.limit if limit is None or limit >= n_max else limit
    return replace(policy, thresholds=policy.thresholds + beyond, limit=limit)
