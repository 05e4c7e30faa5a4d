"""Comparing stopping rules on recorded rounds, offline: `autospec lab`.

Rules that learn are scored on rounds that they have not seen. The rounds are halved at random,
so neighbouring rounds of one request may fall into both halves: what is compared is rules on
one kind of text, not how well a rule carries over to another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from autospec.tuning.cost import DraftCost, fit_overhead, round_cost
from autospec.tuning.replay import (
    Trace,
    Triple,
    best_fixed,
    best_scalar,
    cut_average_cost,
    cut_oracle,
    cut_scalar,
    cut_vector,
    rate,
    times,
    tokens,
)
from autospec.tuning.stopping import Policy, solve
from autospec.tuning.survival import SurvivalModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from autospec.tuning.cost import CostSurface, RoundCost
    from autospec.tuning.observations import Round

    Ints = NDArray[np.intp]


def recorded_cost(rounds: Sequence[Round], target: CostSurface, *, depth: float = 0.0) -> RoundCost:
    """What a round costs where `rounds` were recorded, from the target's batch times at `depth`.

    The median draft step and what verification takes over the target's batch (the draft's
    re-evaluation of it, mostly) are learned from the recorded times; without any both are 0.
    ValueError where the batch times do not reach to the longest recorded draft.
    """
    longest = max((one.drafted for one in rounds), default=0)
    none = DraftCost("none")
    overhead = fit_overhead(rounds, target, none, depth)
    cost = round_cost(target, none, n_max=longest, depth=depth, overhead=overhead)
    if cost.extrapolated:
        raise ValueError(
            f"batches up to {longest + 1} at depth {depth:g} are needed; measured are batches "
            f"up to {target.max_batch} at depths {', '.join(map(str, target.depths))}"
        )
    steps = [
        one.draft_ms / one.drafted for one in rounds if one.draft_ms is not None and one.drafted
    ]
    step = float(np.median(steps)) if steps else 0.0
    return replace(cost, draft_ms=step * np.arange(longest + 1, dtype=np.float64))


def fit_vector(cost: RoundCost, rounds: Sequence[Round]) -> tuple[SurvivalModel, Policy]:
    """Acceptance learned from `rounds`, and the optimal rule under it."""
    survival = SurvivalModel.from_rounds(rounds, cost.n_max)
    return survival, solve(cost, survival)


@dataclass(frozen=True)
class Half:
    """Rules fitted on one half of the rounds and scored on the other, in tokens per second.

    `hindsight` is the triple that is best on the half it is scored on.
    """

    vector: float
    scalar: float
    hindsight: float


def halves(count: int, rounds: int, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """`count` random halvings of `rounds` rounds, each both ways round: (seen, unseen) rows."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        order = random.permutation(rounds)
        one, other = np.sort(order[: rounds // 2]), np.sort(order[rounds // 2 :])
        yield one, other
        yield other, one


def random_halves(
    cost: RoundCost, rounds: Sequence[Round], count: int, seed: int = 0
) -> Iterator[Half]:
    """`count` random halvings of `rounds`, each half scored once by what the other taught."""
    trace = Trace.of(rounds)
    for seen, unseen in halves(count, len(rounds), seed):
        held_out = trace.pick(unseen)
        triple, _ = best_scalar(cost, trace.pick(seen))
        vector = cut_vector(held_out, *fit_vector(cost, [rounds[i] for i in seen]))
        yield Half(
            vector=rate(cost, held_out, vector),
            scalar=rate(cost, held_out, cut_scalar(held_out, triple)),
            hindsight=best_scalar(cost, held_out)[1],
        )


@dataclass(frozen=True)
class Comparison:
    """Rates in tokens per second of every contender on the same rounds.

    `vector` never saw the rounds that it is scored on; `best_fixed`, `best_scalar` (with their
    settings) and `oracle` know them all. `gap_closed` is how much of the way from the best
    triple to the oracle the vector goes, None where there is no way to go.
    """

    plain: float
    best_fixed: float
    best_scalar: float
    pr17034: float
    vector: float
    oracle: float
    fixed: int
    scalar: Triple
    thresholds: tuple[float, ...]
    rounds: int

    @property
    def gap_closed(self) -> float | None:
        way = self.oracle - self.best_scalar
        return (self.vector - self.best_scalar) / way if way > 1e-9 * self.oracle else None

    def to_json(self) -> dict[str, Any]:
        """Plain values; a threshold of None stands for "never"."""
        return {
            "plain": self.plain,
            "best_fixed": self.best_fixed,
            "best_scalar": self.best_scalar,
            "pr17034": self.pr17034,
            "vector": self.vector,
            "oracle": self.oracle,
            "gap_closed": self.gap_closed,
            "settings": {
                "best_fixed": self.fixed,
                "best_scalar": self.scalar._asdict(),
                "thresholds": [t if math.isfinite(t) else None for t in self.thresholds],
            },
            "rounds": self.rounds,
        }


def compare(
    cost: RoundCost,
    rounds: Sequence[Round],
    relative_cost: ArrayLike,
    *,
    splits: int = 10,
    seed: int = 0,
) -> Comparison:
    """Score every contender on `rounds` under `cost`.

    `relative_cost` is the target's curve as pull request 17034 takes it. The vector is fitted on
    one random half and scored on the other, both ways, `splits` times over; its thresholds are
    those from all rounds. ValueError for fewer than four rounds, or none with a draft.
    """
    if len(rounds) < 4:
        raise ValueError("a comparison needs at least four rounds")
    trace = Trace.of(rounds)
    made, spent = 0.0, 0.0
    for seen, unseen in halves(splits, len(rounds), seed):
        held_out = trace.pick(unseen)
        cut = cut_vector(held_out, *fit_vector(cost, [rounds[i] for i in seen]))
        made += float(tokens(held_out, cut).sum())
        spent += float(times(cost, held_out, cut).sum())
    fixed, fixed_rate = best_fixed(cost, trace)
    scalar, scalar_rate = best_scalar(cost, trace)
    return Comparison(
        plain=cost.plain_rate,
        best_fixed=fixed_rate,
        best_scalar=scalar_rate,
        pr17034=rate(cost, trace, cut_average_cost(trace, relative_cost)),
        vector=1000 * made / spent,
        oracle=rate(cost, trace, cut_oracle(cost, trace)),
        fixed=fixed,
        scalar=scalar,
        thresholds=fit_vector(cost, rounds)[1].thresholds,
        rounds=len(rounds),
    )
