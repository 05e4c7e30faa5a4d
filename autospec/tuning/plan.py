"""From costs and beliefs to one decision: speculate, how, and why.

**The gate.** Speculation must earn its place against plain decoding, which is certain:

- nothing observed yet: it is tried where its predicted rate beats plain, and said to be unsure;
- observed: it is on while the *low* prediction (costs and acceptance one standard deviation to
  the worse) is not under plain, and off once even the plain prediction is not over plain;
- in between (better than plain, but within the uncertainty) it is on only where the prediction
  beats plain by more than `MARGIN`: the best of many predicted settings flatters itself, and a
  small doubtful gain is not worth the risk of being slower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autospec.tuning.projection import Scalar, best_scalar
from autospec.tuning.shared import best_policy

if TYPE_CHECKING:
    from autospec.tuning.cost import RoundCost
    from autospec.tuning.stopping import Policy
    from autospec.tuning.survival import SurvivalModel

MARGIN = 0.10

SIMPLER = 0.005
"""A larger p_min or n_min that gains less than this (relative) is not worth explaining."""


@dataclass(frozen=True)
class Pins:
    """Values that the user fixed; None is free. `speculate` forces the decision itself."""

    n_max: int | None = None
    n_min: int | None = None
    p_min: float | None = None
    speculate: bool | None = None


@dataclass(frozen=True)
class Measured:
    """A setting that was tried, and the tokens/s that it gave."""

    n_max: int
    n_min: int
    p_min: float
    rate: float


@dataclass(frozen=True)
class Trial:
    """Settings that were tried beside plain decoding, which gave `plain` tokens/s."""

    plain: float
    settings: tuple[Measured, ...]

    def __post_init__(self) -> None:
        rates = (self.plain, *(one.rate for one in self.settings))
        if not all(math.isfinite(rate) and rate > 0 for rate in rates):
            raise ValueError("a measured rate is finite and positive")

    @property
    def best(self) -> Measured | None:
        """The fastest of the settings; None where none of them beats plain decoding."""
        best = max(self.settings, key=lambda one: one.rate, default=None)
        return best if best is not None and best.rate > self.plain else None


@dataclass(frozen=True)
class Plan:
    """What to run and why.

    `rate` is what is decided gives in tokens/s over all slots, predicted or measured; `reason`
    one sentence with the figures. `scalar` is the best triple, also where speculation is off
    because of its prediction; None where there is none. `unsure` tells that the evidence allows
    the opposite decision.
    """

    speculate: bool
    scalar: Scalar | None
    policy: Policy
    plain_rate: float
    rate: float
    reason: str
    unsure: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "speculate": self.speculate,
            "scalar": self.scalar.to_json() if self.scalar else None,
            "policy": self.policy.to_json(),
            "plain_rate": self.plain_rate,
            "rate": self.rate,
            "reason": self.reason,
            "unsure": self.unsure,
        }


UNPINNED = Pins()


def make_plan(
    cost: RoundCost,
    survival: SurvivalModel,
    *,
    pins: Pins = UNPINNED,
    thresholds: bool = False,
    trial: Trial | None = None,
) -> Plan:
    """Decide for an engine that takes scalars, or, with `thresholds`, for the live policy.

    Pinned values are kept; the gate still decides unless `pins.speculate` is set. What was
    measured in a `trial` outranks every prediction: the same `p_min` helps one pair of models
    and ruins another.
    """
    policy = best_policy(
        cost if pins.n_max is None else cost.truncated(pins.n_max),
        survival,
    )
    if cost.n_max == 0 or pins.n_max == 0:
        return _off(cost, None, policy, "off: n_max leaves no token to draft", unsure=False)
    if trial is not None:
        return _measured_plan(cost, survival, policy, trial)
    scalar = best_scalar(
        cost,
        survival,
        n_max=pins.n_max,
        n_min=pins.n_min,
        p_min=pins.p_min,
        policy=policy,
        tie=SIMPLER,
    )
    rate, low = scalar.rate, scalar.rate_low
    if thresholds:
        worse = best_policy(cost.truncated(policy.n_max).shifted(1.0), survival.shifted(-1.0))
        rate, low = policy.rate, min(policy.rate, worse.rate)
    figures = _figures(rate, "predicted", cost.plain_rate)
    speculate, why, unsure = _gate(rate, low, cost.plain_rate, survival.observed)
    if cost.extrapolated and speculate:
        why, unsure = _and(why, "part of the costs lies beyond what was measured"), True
    if pins.speculate is not None and pins.speculate != speculate:
        speculate, why, unsure = pins.speculate, "pinned", False
    if not speculate:
        return _off(cost, scalar, policy, _and(f"off: {figures}", why), unsure=unsure)
    setting = _setting(scalar)
    if thresholds:
        most = policy.n_max if policy.limit is None else policy.limit
        setting = f"drafting {policy.mean_drafted:.1f} tokens on average, up to {most}"
    return Plan(
        speculate=True,
        scalar=scalar,
        policy=policy,
        plain_rate=cost.plain_rate,
        rate=rate,
        reason=_and(f"{setting}: {figures}", why),
        unsure=unsure,
    )


def _measured_plan(cost: RoundCost, survival: SurvivalModel, policy: Policy, trial: Trial) -> Plan:
    """The fastest of the settings that were tried, or off."""
    best = trial.best
    if best is None:
        tried = max((one.rate for one in trial.settings), default=0.0)
        reason = f"off: {_figures(tried, 'at best', trial.plain)}; none of those tried beats plain"
        plan = _off(cost, None, policy, reason, unsure=False)
        return replace(plan, plain_rate=trial.plain, rate=trial.plain)
    scalar = best_scalar(
        cost, survival, n_max=best.n_max, n_min=best.n_min, p_min=best.p_min, policy=policy
    )
    return Plan(
        speculate=True,
        scalar=scalar,
        policy=policy,
        plain_rate=trial.plain,
        rate=best.rate,
        reason=f"{_setting(scalar)}: {_figures(best.rate, 'measured', trial.plain)}",
        unsure=False,
    )


def _gate(rate: float, low: float, plain: float, observed: float) -> tuple[bool, str, bool]:
    """Whether to speculate, what to add to the reason, and whether that is unsure."""
    if rate <= plain:
        return False, "nothing beats plain decoding", observed == 0
    if observed == 0:
        return True, "a guess before the first measurement", True
    if low >= plain:
        return True, "", False
    if rate > plain * (1.0 + MARGIN):
        return True, "within the uncertainty", True
    return False, "too little to gain for what is known so far", True


def _off(
    cost: RoundCost, scalar: Scalar | None, policy: Policy, reason: str, *, unsure: bool
) -> Plan:
    return Plan(
        speculate=False,
        scalar=scalar,
        policy=policy,
        plain_rate=cost.plain_rate,
        rate=cost.plain_rate,
        reason=reason,
        unsure=unsure,
    )


def _setting(scalar: Scalar) -> str:
    setting = f"drafting up to {scalar.n_max} token{'s' if scalar.n_max > 1 else ''}"
    if scalar.p_min > 0:
        setting += f" while each is at least {scalar.p_min:.2f} likely"
    return setting


def _figures(rate: float, how: str, plain: float) -> str:
    return f"{rate:.1f} tokens/s {how} against {plain:.1f} plain ({rate / plain:.2f}x)"


def _and(sentence: str, more: str) -> str:
    return "; ".join(part for part in (sentence, more) if part)
