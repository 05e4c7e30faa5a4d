"""When to restart the server without a draft, or with one again: the third action.

A draft that is loaded costs even where nothing is drafted, and where nothing is loaded nothing can
be drafted. To go from one side to the other costs a restart: the time to load, and the prompts of
the busy slots, whose caches are lost, to be read again. How long the present text, load and depth
will last is not known.

This is the problem of renting or buying. Each second on the worse side loses `1 − rate/other`
seconds against the other one; once the loss since things turned is as large as the price of the
restart, one restarts. Whenever things turn back, waiting and restarting have then cost no more than
twice what they cost someone who knew when, and no rule without foresight does better than that
(A. Karlin, M. Manasse, L. Rudolph and D. Sleator, "Competitive snoopy caching", 1988). The loss is
only believed, not known: it comes from predicted rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPrice:
    """What a restart costs: seconds to load, by where to, and the prompts to be read again."""

    into_plain_s: float
    into_draft_s: float
    prefill_tokens_per_s: float

    def __post_init__(self) -> None:
        times = (self.into_plain_s, self.into_draft_s, 1.0 / (self.prefill_tokens_per_s or -1.0))
        if not all(0 <= time < math.inf for time in times):
            raise ValueError("a restart takes no negative time, and prompts are read at some rate")

    def seconds(self, *, plain: bool, cached: float) -> float:
        """For a restart to `plain` decoding or away from it that loses `cached` tokens of context,
        over all busy slots."""
        load = self.into_plain_s if plain else self.into_draft_s
        return load + cached / self.prefill_tokens_per_s


@dataclass(frozen=True)
class Loss:
    """Seconds lost on this side of a restart, since the other one became the better."""

    seconds: float = 0.0

    def after(self, spent_s: float, rate: float, other: float) -> Loss:
        """After `spent_s` seconds at a predicted `rate`, where the other side has `other`."""
        return Loss(max(0.0, self.seconds + spent_s * (1.0 - rate / other)))

    def pays(self, price_s: float) -> bool:
        """Whether a restart for `price_s` seconds is due."""
        return self.seconds > 0.0 and self.seconds >= price_s
