"""What could be in force, and how fast each would be at the loads and depths of late. Pure.

Time passes at several loads and depths; an option's rate is the mean of its rates there, each
weighted by its share of the time at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autospec.daemon.retuning.decide import LIVE, PLAIN, Rate
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.retuning.sources import source_of
from autospec.daemon.setting import Basis
from autospec.engine.launch import Speculation
from autospec.tuning.cost import RoundCost
from autospec.tuning.costvector import cost_vector
from autospec.tuning.plan import Pins
from autospec.tuning.projection import Scalar, best_scalar, scalar_rate
from autospec.tuning.shared import policy_table
from autospec.tuning.stopping import Policy
from autospec.tuning.survival import SurvivalModel

Mixture = Sequence[tuple[Basis, float]]
Predictor = Callable[[RoundCost, SurvivalModel], float]


@dataclass(frozen=True)
class Outlook:
    """Predictions under one state of knowledge, over one mixture of loads and depths."""

    knowledge: Knowledge
    mixture: Mixture
    survival: SurvivalModel
    _vectors: dict[int, Rate] = field(default_factory=dict, repr=False)
    _policies: dict[int, list[Policy]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, knowledge: Knowledge, mixture: Mixture) -> Outlook:
        """ValueError for a mixture of nothing."""
        if not mixture:
            raise ValueError("a mixture has at least one load and depth")
        return cls(knowledge, mixture, knowledge.survival)

    def rate(self, predictor: Predictor) -> Rate:
        """The mean rate over the mixture. How far costs and acceptance move it, both by a standard
        deviation to the worse or to the better, is seen at the heaviest load and depth."""
        costs = [(self.knowledge.costs.at(basis), share) for basis, share in self.mixture]
        value = sum(share * predictor(cost, self.survival) for cost, share in costs)
        heaviest = costs[0][0]
        there = predictor(heaviest, self.survival)
        worse, better = (
            value * predictor(heaviest.shifted(-by), self.survival.shifted(by)) / there
            for by in (-1.0, 1.0)
        )
        return Rate(value, worse=worse, better=better)

    @property
    def plain(self) -> Rate:
        value = sum(
            share * self.knowledge.costs.at(basis).plain_rate for basis, share in self.mixture
        )
        return Rate(value, value * self.knowledge.costs.plain_sd(self.mixture[0][0]))

    def vector(self, n_max: int) -> Rate:
        """Thresholds inside the engine, for a child launched with `n_max`."""
        if n_max not in self._vectors:
            value, there = self.vector_value(n_max), self._policies[n_max]
            heaviest = _up_to(self.knowledge.costs.at(self.mixture[0][0]), n_max)
            worse, better = (
                value * self._solved([heaviest.shifted(-by)], by, there[:1])[0].rate / there[0].rate
                for by in (-1.0, 1.0)
            )
            self._vectors[n_max] = Rate(value, worse=worse, better=better)
        return self._vectors[n_max]

    def vector_value(self, n_max: int) -> float:
        """The rate of `vector` alone, without its doubt: a third of the work."""
        if n_max not in self._policies:
            self._policies[n_max] = self._over_mixture(n_max)
        shares = [share for _, share in self.mixture]
        rates = [policy.rate for policy in self._policies[n_max]]
        return sum(share * rate for share, rate in zip(shares, rates, strict=True))

    def _over_mixture(self, n_max: int) -> list[Policy]:
        """The best policy of each part of the mixture, in its order. At one load the best limits
        are near each other, so the search at other depths goes on from that at the first."""
        costs = [_up_to(self.knowledge.costs.at(basis), n_max) for basis, _ in self.mixture]
        loads = [basis.busy for basis, _ in self.mixture]
        firsts = [loads.index(load) for load in dict.fromkeys(loads)]
        rest = [index for index in range(len(loads)) if index not in firsts]
        found = dict(zip(firsts, self._solved([costs[i] for i in firsts]), strict=True))
        start = [found[loads.index(loads[index])] for index in rest]
        found |= zip(rest, self._solved([costs[i] for i in rest], start=start), strict=True)
        return [found[index] for index in range(len(loads))]

    def _solved(
        self, costs: Sequence[RoundCost], sds: float = 0.0, start: Sequence[Policy] = ()
    ) -> list[Policy]:
        """The best policies, acceptance moved by `sds`; the search goes on from `start`."""
        survival = self.survival.shifted(sds) if sds else self.survival
        known = dict(enumerate(start))
        table = policy_table(dict(enumerate(costs)), survival, limit_is_free=True, start=known)
        return list(table.values())

    def zero(self) -> Rate:
        return self.rate(lambda cost, _: cost.zero_rate)

    def flags(self, speculation: Speculation) -> Rate:
        n_max = min(speculation.n_max, self.knowledge.longest)
        return self.rate(
            lambda cost, survival: scalar_rate(
                cost, survival, n_max, speculation.n_min, speculation.p_min
            )
        )

    def environment(self) -> Rate:
        """A cost vector at start, made for the heaviest load and depth."""
        return self.rate(lambda cost, survival: cost_vector(cost, survival).rate)

    def best_flags(self, pins: Pins) -> tuple[Scalar, Rate]:
        """The triple that is best over the mixture, out of those that are best somewhere."""
        found = {}
        for basis, _ in self.mixture:
            scalar = best_scalar(
                self.knowledge.costs.at(basis),
                self.survival,
                n_max=pins.n_max,
                n_min=pins.n_min,
                p_min=pins.p_min,
                tie=_SIMPLER,
            )
            found[scalar.n_max, scalar.n_min, scalar.p_min] = scalar
        rated = [
            (one, self.flags(Speculation(("",), one.n_max, one.n_min, one.p_min)))
            for one in found.values()
        ]
        return max(rated, key=lambda pair: pair[1].value)


_SIMPLER = 0.005
"""A larger p_min or n_min that gains less than this (relative) is not worth a flag."""


def _up_to(cost: RoundCost, n_max: int) -> RoundCost:
    return cost.truncated(min(n_max, cost.n_max))


def named(speculation: Speculation, *, live: bool = False) -> str:
    """What a setting is called in decisions and explanations."""
    if not speculation.on:
        return PLAIN
    if live:
        return LIVE
    if (source := source_of(speculation)) is not None:
        return source
    return (
        f"flags n_max {speculation.n_max}, n_min {speculation.n_min}, p_min {speculation.p_min:g}"
    )
