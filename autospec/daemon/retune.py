"""Whether a better setting is worth a restart. Pure: observation in, decision out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from autospec.config.schema import RetuneSection
from autospec.daemon.setting import Setting

ENOUGH_ROUNDS = 50
"""Rounds of real traffic before acceptance is believed to be known."""

AGAIN_SECONDS = 60.0
_HOUR = 3600.0

Action = Literal["keep", "wait", "restart"]


@dataclass(frozen=True)
class Observed:
    """What is known when the question is asked; times in seconds of one monotonic clock.

    `traffic_since` is when the first token under this setting was generated, `rounds` how many
    drafts were verified since, `asked` when the question was last thought through.
    """

    now: float
    traffic_since: float | None
    rounds: int
    idle: bool
    asked: float | None
    restarts: Sequence[float]


@dataclass(frozen=True)
class Decision:
    """`reason` is the arithmetic in words; `rate` and `better` are predicted tokens/s of the
    setting in force and of the best one, under what is known now."""

    action: Action
    reason: str
    rate: float | None = None
    better: float | None = None


def due(observed: Observed, settings: RetuneSection, *, speculating: bool) -> bool:
    """Whether there is enough new traffic to think again."""
    if not settings.enabled or observed.traffic_since is None:
        return False
    if observed.now - observed.traffic_since < settings.after:
        return False
    if speculating and observed.rounds < ENOUGH_ROUNDS:
        return False
    return observed.asked is None or observed.now - observed.asked >= AGAIN_SECONDS


def decide(
    current: Setting, candidate: Setting, rate: float, observed: Observed, settings: RetuneSection
) -> Decision:
    """Whether `candidate` shall replace `current`, whose predicted rate is now `rate` tokens/s.

    A restart drops what the slots have cached, so it must promise `min_gain`, fit the hourly
    budget, and waits until no request is being answered.
    """
    better = candidate.plan.rate if candidate.plan is not None else rate
    if candidate.speculation == current.speculation:
        return Decision("keep", "the setting in force is still the best one", rate, better)
    figures = f"{better:.1f} tokens/s predicted against {rate:.1f} now"
    if better < rate * (1 + settings.min_gain):
        why = f"{figures}: less than {settings.min_gain:.0%} to gain"
        return Decision("keep", why, rate, better)
    recent = [at for at in observed.restarts if observed.now - at < _HOUR]
    if len(recent) >= settings.max_restarts_per_hour:
        why = f"{figures}, but the {settings.max_restarts_per_hour} restarts of this hour are used"
        return Decision("keep", why, rate, better)
    if not observed.idle:
        return Decision("wait", f"{figures}: restarting as soon as no request runs", rate, better)
    return Decision("restart", figures, rate, better)
