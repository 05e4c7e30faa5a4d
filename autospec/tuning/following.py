"""Settings that follow what is happening, as a value: what is believed, and what is best by it.

What the daemon does with a real server is done here with rounds from anywhere: calibrated costs
that rounds correct, learned acceptance, the optimal rule for the slots and the depth at hand, drift
detection, and the restart into plain decoding and back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from autospec.tuning.drift import Detector, acceptance_surprise, watch_acceptance
from autospec.tuning.livecost import LiveCost, TimedStep
from autospec.tuning.replay import calibrated
from autospec.tuning.restart import Loss
from autospec.tuning.shared import policy_table
from autospec.tuning.survival import SurvivalModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autospec.tuning.observations import Round
    from autospec.tuning.stopping import Policy

WINDOW = 256
"""Rounds that are kept to learn from again once acceptance has changed."""

LEAST = 16
"""At least so many of them are believed then."""

USUAL = 4000.0
"""Rounds over which what texts are usually like is remembered."""


@dataclass(frozen=True, eq=False)
class Tuner:
    """What is believed after the rounds seen so far; a value, replaced by `observe`."""

    cost: LiveCost
    belief: SurvivalModel
    recent: tuple[Round, ...] = ()
    acceptance: Detector = field(default_factory=watch_acceptance)
    alarms: int = 0
    limit_is_free: bool = True
    usual: SurvivalModel | None = None
    loaded: bool = True
    loss: Loss = field(default_factory=Loss)
    restarts: int = 0

    def policy(self, slots: int, depth: float) -> Policy:
        """The best rule for this load and depth under all that is believed.

        Plain decoding is taken to cost what was calibrated: rounds tell nothing of it.
        """
        plain_ms = self.cost.target.step(1, depth, slots).value
        cost = self.cost.round_cost(n_max=self.belief.n_max, depth=depth, slots=slots)
        belief = self.belief if self.loaded else self.usual or self.belief
        costs = {(): replace(cost, plain_ms=plain_ms)}
        return policy_table(costs, belief, limit_is_free=self.limit_is_free)[()]

    def observe(self, rounds: Sequence[Round], slots: int, depth: float) -> Tuner:
        """Learn from a block of rounds, `slots` of them a step; forget the rest where acceptance
        has changed."""
        telling = [one for one in rounds if one.drafted or one.cut_p is not None]
        recent = (*self.recent, *telling)[-WINDOW:]
        detector = self.acceptance
        for one in telling:
            if not one.drafted:
                continue
            survival = np.cumprod(calibrated(self.belief, np.array([one.p]))[0])
            detector = detector.observe(acceptance_surprise(one.accepted, survival.tolist()))
        changed = detector.alarm is not None
        belief = (
            SurvivalModel.from_rounds(recent[-max(detector.since, LEAST) :], self.belief.n_max)
            if changed
            else self.belief.update(telling)
        )
        groups = (rounds[start : start + slots] for start in range(0, len(rounds), slots))
        steps = (TimedStep.of(group, slots, depth) for group in groups)
        return replace(
            self,
            cost=self.cost.observe([step for step in steps if step is not None]),
            belief=belief,
            recent=recent,
            acceptance=detector.reset() if changed else detector,
            alarms=self.alarms + changed,
            usual=(self.usual or self.belief).update(telling, memory=USUAL),
        )

    def spend(self, seconds: float, policy: Policy, price_s: float) -> tuple[Tuner, float]:
        """After `seconds` in which `policy` was the best rule: restarted if that is due by now.

        Returns what the restart took as well, 0 s without one.
        """
        rates = (policy.rate, policy.plain_rate)
        loss = self.loss.after(seconds, *(rates if self.loaded else rates[::-1]))
        if not loss.pays(price_s):
            return replace(self, loss=loss), 0.0
        other = replace(self, loss=Loss(), loaded=not self.loaded, restarts=self.restarts + 1)
        return other, price_s
