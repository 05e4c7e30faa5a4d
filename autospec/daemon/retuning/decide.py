"""What to do about the setting in force. Pure: all that is known in, one decision out.

The arithmetic of a restart. It gains `better − present` tokens/s for as long as the new setting
stays the better one. Nobody knows how long; the estimate is Lindy's: as long as it has been so
already (J. R. Gott, 1993: the median of what remains equals what has passed, when the moment of
looking is like any other). Against that stand the tokens that are not made while the new child
loads, and while the prompts that the slots had cached are evaluated again. A restart comes when
the first is more than the second; noise, which favours another setting every time one looks,
never gets there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autospec.config.schema import RetuneSection

if TYPE_CHECKING:
    from autospec.tuning.stopping import Policy

HOUR = 3600.0
SURE = 2.0
"""Standard deviations of what concerns one figure alone that a gain must exceed."""

PATIENCE = 120.0
"""Seconds that a restart waits for a moment without requests; then it comes all the same."""

LIVE_CHANGE = 0.25
"""Thresholds under which drafts become longer or shorter by this share are worth telling of."""

LIVE_GAIN = 0.02
"""A live change that gains less (relative) is not worth telling of."""

PLAIN = "plain decoding"
ZERO = "live k = 0"
LIVE = "live thresholds"
VECTOR = "cost vector"

Action = Literal[
    "keep",
    "change live",
    "restart when idle",
    "restart now",
    "live k = 0",
    "restart without a draft",
    "back to previous",
    "try a source",
]
RESTARTS: frozenset[Action] = frozenset(
    {"restart now", "restart without a draft", "back to previous", "try a source"}
)

How = Literal["in force", "live", "restart"]


@dataclass(frozen=True)
class Rate:
    """Tokens/s over all slots.

    `worse` and `better` are the same in worlds whose costs and acceptance are a standard deviation
    worse or better than believed: what options share, which says little of their difference. `sd`
    is the standard deviation of what concerns this figure alone.
    """

    value: float
    sd: float = 0.0
    worse: float | None = None
    better: float | None = None
    measured: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value >= 0 and self.sd >= 0):
            raise ValueError(f"not a rate: {self}")

    @property
    def worlds(self) -> tuple[float, float, float]:
        """The rate as believed, in the worse world, in the better one."""
        worse = self.value if self.worse is None else self.worse
        return self.value, worse, self.value if self.better is None else self.better

    def times(self, factor: float, *, sd: float = 0.0, measured: bool = False) -> Rate:
        """All of it `factor` times as fast, with `sd` more of its own."""
        value, worse, better = (factor * one for one in self.worlds)
        return Rate(value, math.hypot(factor * self.sd, sd), worse, better, measured)


@dataclass(frozen=True)
class Option:
    """Something that could be in force; `how` it would come into force."""

    name: str
    rate: Rate
    how: How
    plain: bool = False


@dataclass(frozen=True)
class Price:
    """What a restart costs: seconds without tokens. `caches` are seconds of evaluating again what
    the slots had cached. With `side_by_side` the old child serves until the new one is ready."""

    reload: float
    caches: float = 0.0
    side_by_side: bool = False

    @property
    def seconds(self) -> float:
        return self.caches + (0.0 if self.side_by_side else self.reload)


FREE = Price(0.0)


@dataclass(frozen=True)
class Leaning:
    """Which option has been the better one without a break, and since when (monotonic s)."""

    option: str
    since: float


@dataclass(frozen=True)
class Standing:
    """All that a decision is made from; times in seconds of one monotonic clock.

    `options` are the alternatives, the setting in force among them (`how` "in force"), each at
    the present mixture of loads and depths. `working` is the share of time in which tokens are
    generated. `leaning` is what `lean` made of earlier looks. `slower`: the gate's verdict on
    the setting in force. `previous` names the option that was in force before, if it can be again.
    `wanted` is when a restart was first wanted.
    """

    now: float
    options: Sequence[Option]
    price: Price
    leaning: Leaning | None
    working: float = 1.0
    idle: bool = False
    slower: bool = False
    previous: str | None = None
    wanted: float | None = None
    restarts: Sequence[float] = ()

    @property
    def in_force(self) -> Option:
        return next(option for option in self.options if option.how == "in force")

    @property
    def best(self) -> Option:
        """The fastest; of equals the one in force, then the one that needs no restart.

        Live k = 0 is a part of the thresholds where that is best, and no option of its own.
        """
        order = {"in force": 2, "live": 1, "restart": 0}
        known = [one for one in self.options if one.name != ZERO]
        return max(known, key=lambda one: (one.rate.value, order[one.how]))


@dataclass(frozen=True)
class Arithmetic:
    """Tokens/s gained, for how many seconds of work that is expected, and what the restart costs
    in tokens."""

    gain_rate: float
    expected_seconds: float
    price_seconds: float
    price_tokens: float

    @property
    def gain_tokens(self) -> float:
        return self.gain_rate * self.expected_seconds

    @property
    def pays(self) -> bool:
        return self.gain_tokens > self.price_tokens


@dataclass(frozen=True)
class Decision:
    """`option` shall be in force; `reason` is the arithmetic in words."""

    action: Action
    option: str
    reason: str
    options: tuple[Option, ...] = ()
    arithmetic: Arithmetic | None = None

    @property
    def restarts(self) -> bool:
        return self.action in RESTARTS


def worth(present: Option, other: Option, min_gain: float) -> str | None:
    """Why `other` is not worth a change; None where it is clearly better."""
    figures = _figures(present, other)
    gains = [b - a for a, b in zip(present.rate.worlds, other.rate.worlds, strict=True)]
    if gains[0] < min_gain * present.rate.value:
        return f"{figures}: less than {min_gain:.0%} to gain"
    if min(gains) < SURE * math.hypot(present.rate.sd, other.rate.sd):
        return f"{figures}: not clear of the doubt in both figures"
    return None


def lean(leaning: Leaning | None, standing: Standing, rules: RetuneSection) -> Leaning | None:
    """What has been the better setting without a break, after one more look."""
    best = standing.best
    if worth(standing.in_force, best, rules.min_gain) is not None:
        return None
    if leaning is not None and leaning.option == best.name:
        return leaning
    return Leaning(best.name, standing.now)


def decide(standing: Standing, rules: RetuneSection) -> Decision:
    """One decision for `standing`, whose `leaning` already knows of this look."""
    if standing.slower and not standing.in_force.plain:
        return _roll_back(standing, rules)
    present, best = standing.in_force, standing.best
    options = tuple(standing.options)
    if best.how == "in force":
        reason = f"{best.name} is still the best: {best.rate.value:.1f} tokens/s"
        return Decision("keep", present.name, reason, options)
    live = max(
        (one for one in standing.options if one.how == "live" and one.name != ZERO),
        key=lambda one: one.rate.value,
        default=None,
    )
    if live is not None and worth(present, live, LIVE_GAIN) is None:
        return Decision("change live", live.name, _figures(present, live), options)
    if best.how == "live":
        reason = worth(present, best, LIVE_GAIN) or _figures(present, best)
        return Decision("keep", present.name, reason, options)
    return _restart(standing, best, rules)


def _restart(standing: Standing, best: Option, rules: RetuneSection) -> Decision:
    present, options = standing.in_force, tuple(standing.options)

    def keep(reason: str, sums: Arithmetic | None = None) -> Decision:
        return Decision("keep", present.name, reason, options, sums)

    if (why_not := worth(present, best, rules.min_gain)) is not None:
        return keep(why_not)
    sums = _arithmetic(standing, best)
    figures = f"{_figures(present, best)}; {_in_words(sums)}"
    if not sums.pays:
        return keep(f"{figures}: it does not pay yet", sums)
    # A setting that may turn out slower than plain needs a restart in hand for the way back.
    needed = 1 if best.plain or rules.max_restarts_per_hour == 1 else 2
    if (spent := _spent(standing, rules, needed)) is not None:
        return keep(f"{figures}; {spent}", sums)
    if not standing.idle and not _waited(standing):
        reason = f"{figures}: as soon as no request runs, within {PATIENCE:.0f} s"
        return Decision("restart when idle", best.name, reason, options, sums)
    action: Action = "restart without a draft" if best.plain else "restart now"
    return Decision(action, best.name, figures, options, sums)


def _roll_back(standing: Standing, rules: RetuneSection) -> Decision:
    """Away from a setting that measures slower than plain decoding, without asking what pays."""
    present, options = standing.in_force, tuple(standing.options)
    safe = [one for one in standing.options if one.plain or one.name == standing.previous]
    best = max(
        (one for one in safe if one.how == "restart"),
        key=lambda one: (one.rate.value, one.plain),
        default=None,
    )
    if best is None:
        reason = f"{present.name} measures slower than plain decoding, and is what you pinned"
        return Decision("keep", present.name, reason, options)
    figures = f"{_figures(present, best)}: measured slower than plain decoding"
    if (spent := _spent(standing, rules, 1)) is None:
        action: Action = "restart without a draft" if best.plain else "back to previous"
        return Decision(action, best.name, figures, options)
    live = next((one for one in standing.options if one.name == ZERO), None)
    if live is not None and live.how == "live":
        return Decision("live k = 0", live.name, f"{figures}; {spent}", options)
    return Decision("keep", present.name, f"{figures}; {spent}", options)


def may_try(standing: Standing, rules: RetuneSection) -> bool:
    """Whether this is the moment to try something that nothing is known of: nobody waits, and the
    hour's budget has a restart for the way back."""
    return standing.idle and _spent(standing, rules, 2) is None


def _arithmetic(standing: Standing, best: Option) -> Arithmetic:
    leaning = standing.leaning
    lasted = standing.now - leaning.since if leaning and leaning.option == best.name else 0.0
    present = standing.in_force.rate.value
    return Arithmetic(
        gain_rate=best.rate.value - present,
        expected_seconds=max(0.0, lasted) * standing.working,
        price_seconds=standing.price.seconds,
        price_tokens=standing.price.seconds * present * standing.working,
    )


def _spent(standing: Standing, rules: RetuneSection, needed: int) -> str | None:
    """Why the hour's budget does not allow `needed` more restarts; None where it does."""
    recent = sum(standing.now - at < HOUR for at in standing.restarts)
    if recent + needed <= rules.max_restarts_per_hour:
        return None
    if recent < rules.max_restarts_per_hour:
        return "the last restart of this hour is kept for the way back"
    return f"the {rules.max_restarts_per_hour} restarts of this hour are used"


def _waited(standing: Standing) -> bool:
    return standing.wanted is not None and standing.now - standing.wanted >= PATIENCE


def _figures(present: Option, other: Option) -> str:
    how = "measured" if other.rate.measured else "predicted"
    now = "measured" if present.rate.measured else "predicted"
    return (
        f"{other.name}: {other.rate.value:.1f} tokens/s {how} against "
        f"{present.rate.value:.1f} {now} for {present.name}"
    )


def _in_words(sums: Arithmetic) -> str:
    return (
        f"{sums.gain_rate:.1f} tokens/s for another {sums.expected_seconds:.0f} s of work are "
        f"{sums.gain_tokens:.0f} tokens, the restart costs {sums.price_tokens:.0f} "
        f"({sums.price_seconds:.0f} s)"
    )


def live_change(before: Policy | None, after: Policy, where: str) -> Decision | None:
    """What became of the live thresholds since they were told of last, if it is worth telling.

    `before` is what was told of then, None for nothing yet; `where` names the load and the depth.
    """
    rates = f"{after.rate:.1f} tokens/s predicted, {after.zero_rate:.1f} without drafting"
    if before is not None and before.drafts == after.drafts:
        change = abs(after.mean_drafted - before.mean_drafted)
        if change < LIVE_CHANGE * max(before.mean_drafted, 1.0):
            return None
    if not after.drafts:
        return Decision("live k = 0", ZERO, f"drafting does not pay {where}: {rates}")
    place = f" in place of {before.mean_drafted:.1f}" if before is not None else ""
    reason = f"drafts of {after.mean_drafted:.1f} tokens on average{place} {where}: {rates}"
    return Decision("change live", LIVE, reason)
