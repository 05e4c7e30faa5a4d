"""What rounds cost by load and depth: the calibration, moved by what live rounds take.

What plain decoding costs is moved only by what was seen of it: by a child without a draft, and by
a sudden change of all costs, which concerns the machine and so plain decoding too. What rounds of
speculation cost beyond the calibration *from the start* says nothing of plain decoding; taking it
for a slow machine would hide that speculation is slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autospec.calibration.result import Calibration
from autospec.daemon.retuning.steps import Step
from autospec.daemon.setting import Basis
from autospec.tuning.correction import place
from autospec.tuning.cost import RoundCost, fit_overhead
from autospec.tuning.livecost import LiveCost, TimedStep
from autospec.tuning.observations import Counters

MEMORY = 200.0
"""Observations over which the learned ratio of plain decoding fades by e."""

OTHER_WORK = 3.0
"""Where a step took more than this many times what is expected, the rest of it is taken for other
work, such as another slot's prompt."""

_QUARTILE = 0.6745
"""Half an interquartile range of a normal distribution, in standard deviations."""

_GRAIN = 32.0
_ROUNDS_A_STEP = 16
_MOST_STEPS = 8
_ENOUGH_STEPS = 8


@dataclass(frozen=True)
class Ratio:
    """Mean of log(observed / expected), its variance, and what it is worth in observations."""

    mean: float = 0.0
    variance: float = 0.0
    worth: float = 0.0

    def observe(self, value: float, count: float = 1.0) -> Ratio:
        """With an observed over expected ratio that is worth `count` observations."""
        limit = float(np.log(OTHER_WORK))
        logged = float(np.clip(np.log(value), self.mean - limit, self.mean + limit))
        keep = self.worth * float(np.exp(-count / MEMORY))
        worth = keep + count
        moved = logged - self.mean
        mean = self.mean + moved * count / worth
        variance = (keep * self.variance + count * moved * (logged - mean)) / worth
        return Ratio(mean, max(variance, 0.0), worth)

    def shifted(self, log_ratio: float) -> Ratio:
        """Moved by a change that is not certain to concern it: worth little from now on."""
        return Ratio(self.mean + log_ratio, self.variance, min(self.worth, 1.0))

    @property
    def factor(self) -> float:
        return float(np.exp(self.mean))

    @property
    def sd(self) -> float:
        """Standard deviation of the mean, in log."""
        return float(np.sqrt(self.variance / self.worth)) if self.worth > 1.0 else 0.0


NOTHING = Ratio()


@dataclass(frozen=True)
class Costs:
    """`live` is the calibration of rounds up to `longest` drafted tokens and what corrects it,
    `plain` what was seen of plain decoding over what was calibrated."""

    live: LiveCost
    longest: int
    plain: Ratio = NOTHING
    _known: dict[tuple[int, int], RoundCost] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, calibration: Calibration, longest: int) -> Costs:
        target, draft = calibration.surface, calibration.draft_cost("autoregressive")
        overhead = fit_overhead(calibration.rounds, target, draft, calibration.rehearsal_depth)
        return cls(LiveCost(target, draft, overhead), longest)

    def at(self, basis: Basis) -> RoundCost:
        """The cost of rounds of `basis.busy` slots at about `basis.depth`."""
        key = (basis.busy, round(basis.depth / _GRAIN))
        if key not in self._known:
            depth = key[1] * _GRAIN
            cost = self.live.round_cost(n_max=self.longest, depth=depth, slots=basis.busy)
            calibrated = self.live.target.step(1, depth, basis.busy).value
            self._known[key] = replace(cost, plain_ms=calibrated * self.plain.factor)
        return self._known[key]

    def plain_sd(self, basis: Basis) -> float:
        """Relative standard deviation of the plain rate."""
        one = self.live.target.step(1, basis.depth, basis.busy)
        return float(np.hypot(one.spread / one.value / _QUARTILE, self.plain.sd))

    def expected_ms(self, step: Step) -> float:
        """What `step` should have taken, by what is known now."""
        cost = self.at(Basis(step.depth, step.busy))
        kept = np.interp(step.batch - 1.0, np.arange(cost.n_max + 1), cost.verify_ms)
        return float(cost.draft_ms[min(step.steps, cost.n_max)] + kept)

    def after_steps(self, steps: list[Step]) -> Costs:
        """With the times of steps that the live library reported, of many those of some."""
        every = -(-len(steps) // _ENOUGH_STEPS) or 1
        timed = [
            TimedStep(
                slots=step.busy,
                depth=step.depth,
                drafted=step.busy * (step.batch - 1.0),
                verify_ms=step.whole_ms - step.draft_ms,
                steps=step.steps,
                draft_ms=step.draft_ms,
            )
            for step in steps[::every]
        ]
        return self._after(timed)

    def after_span(self, span: Counters, basis: Basis) -> Costs:
        """With the mean time of rounds that an engine counted.

        Drafting is not told from verification: each is taken to have its calibrated share.
        """
        rounds = span.predicted - span.accepted
        if rounds <= 0:
            return self
        drafted = min(span.drafted / rounds, float(self.longest))
        cost = self.at(basis)
        positions = np.arange(cost.n_max + 1)
        drafting, verifying = (
            float(np.interp(drafted, positions, ms)) for ms in (cost.draft_ms, cost.verify_ms)
        )
        whole = 1000.0 * span.predicted_seconds / rounds
        share = drafting / (drafting + verifying)
        step = TimedStep(
            slots=basis.busy,
            depth=basis.depth,
            drafted=basis.busy * drafted,
            verify_ms=(1.0 - share) * whole,
            steps=round(drafted),
            draft_ms=share * whole,
        )
        return self._after([step] * max(1, min(_MOST_STEPS, rounds // _ROUNDS_A_STEP)))

    def with_plain(self, ratio: float, count: float) -> Costs:
        """With plain decoding seen to take `ratio` times what was calibrated, `count` times."""
        return Costs(self.live, self.longest, self.plain.observe(ratio, count))

    def factors(self, bases: Sequence[Basis]) -> NDArray[np.float64]:
        """What calibrated times of short and long drafts are multiplied by at `bases`."""
        busy = np.array([float(basis.busy) for basis in bases])
        depth = np.array([basis.depth for basis in bases])
        places = [place(busy * batch, depth, busy) for batch in (1.0, 1.0 + self.longest)]
        verifying, drafting = self.live.verifying, self.live.drafting
        moved = (verifying.factor(places[0]), verifying.factor(places[1]))
        return np.concatenate([*moved, drafting.factor(places[0])])

    @property
    def changes(self) -> int:
        """How often costs were found to have changed."""
        return self.live.alarms

    def _after(self, steps: list[TimedStep]) -> Costs:
        live = self.live.observe(steps)
        plain = self.plain
        if live.alarms != self.live.alarms and steps:
            slots = [float(steps[-1].slots)]
            x = place(slots, steps[-1].depth, slots)
            moved = live.verifying.factor(x) / self.live.verifying.factor(x)
            plain = plain.shifted(float(np.log(moved[0])))
        return Costs(live, self.longest, plain)
