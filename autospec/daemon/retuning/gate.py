"""Never slower: is what is in force slower than plain decoding would be? Pure.

A round of n slots that made N tokens in t seconds is set against the tokens that plain decoding
makes in that time at that depth and load. The difference a slot is x; while the setting is no
slower, the mean of x is not negative. `slower` holds once an asymptotic confidence sequence for
that mean lies below zero (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central
limit theory and asymptotic confidence sequences", 2024, the one-sided normal mixture): it may be
looked at after every round, and a setting that is exactly as fast as plain is blamed with a chance
of `ALARM` over its whole life. Neighbouring rounds share their text, so n of them count for
n / DEPENDENCE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autospec.tuning.survival import DEPENDENCE

if TYPE_CHECKING:
    from autospec.tuning.observations import Counters

ALARM = 0.01
FEWEST = 48
"""Rounds before a verdict: the sequence holds for sums that are close to normal."""

UNTOLD = 1.0
"""Variance of the tokens of a round by an engine that does not count drafts: that of a draft of two
tokens, of which both are accepted or none, as often."""

WITHIN = 200
"""Rounds, over all slots, within which a clearly slower setting is found out; the sequence is
tightest there, and starts anew after twice as many."""

_BEST_AT = WITHIN / DEPENDENCE
_LOG = -2.0 * math.log(2.0 * ALARM)
_RHO2 = (_LOG + math.log(_LOG) + 1.0) / _BEST_AT


@dataclass(frozen=True)
class Gate:
    """Rounds since the setting came into force, or since something changed.

    `tokens` were made; plain decoding would have made `plain`. `total` and `squares` are the sums
    of x and of x². After `most` rounds it starts anew.
    """

    rounds: int = 0
    tokens: float = 0.0
    plain: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    most: int = 2 * WITHIN

    def step(self, tokens: list[int], plain: float) -> Gate:
        """With one step of all busy slots: what each made, and plain decoding in all of them.

        ValueError without a slot, or where `plain` is no positive number.
        """
        if not tokens or not 0.0 < plain < math.inf:
            raise ValueError("a step has slots, and takes time")
        start = self._begun()
        x = [made - plain / len(tokens) for made in tokens]
        return Gate(
            start.rounds + len(x),
            start.tokens + sum(tokens),
            start.plain + plain,
            start.total + sum(x),
            start.squares + sum(one * one for one in x),
            self.most,
        )

    def span(self, seen: Counters, plain: float) -> Gate:
        """With what an engine counted over a span in which plain decoding makes `plain` tokens.

        Single rounds are not told apart, but how often i tokens were accepted gives the second
        moment of their number, `Σ (2i − 1)·P(A ≥ i)`, and so its variance. Where an engine does
        not tell, tokens count as rounds, and the variance is taken to be UNTOLD.
        """
        rounds = max(0, seen.predicted - seen.accepted)
        if rounds == 0 or plain <= 0.0:
            return self
        start = self._begun()
        moment = sum((2 * i + 1) * count for i, count in enumerate(seen.per_position))
        variance = max(0.0, moment / rounds - (seen.accepted / rounds) ** 2)
        variance = variance if seen.tells_drafts else UNTOLD
        mean = (seen.predicted - plain) / rounds
        return Gate(
            start.rounds + rounds,
            start.tokens + seen.predicted,
            start.plain + plain,
            start.total + rounds * mean,
            start.squares + rounds * (variance + mean * mean),
            self.most,
        )

    def _begun(self) -> Gate:
        return Gate(most=self.most) if self.rounds >= self.most else self

    @property
    def ratio(self) -> float | None:
        """Measured speed over plain decoding's, None before anything was measured."""
        return self.tokens / self.plain if self.plain > 0 else None

    @property
    def spread(self) -> float:
        """Standard error of `ratio`."""
        if self.rounds < 2 or self.plain <= 0:
            return math.inf
        return self._sd * math.sqrt(DEPENDENCE / self.rounds) * self.rounds / self.plain

    @property
    def _sd(self) -> float:
        mean = self.total / self.rounds
        return math.sqrt(max(0.0, self.squares / self.rounds - mean * mean))

    def slower(self, doubt: float = 0.0) -> bool:
        """Whether plain decoding, taken `doubt` (relative) slower than is known, is faster still,
        and beyond the scatter of the rounds."""
        if self.rounds < FEWEST:
            return False
        count = self.rounds / DEPENDENCE
        grown = count * _RHO2 + 1.0
        width = self._sd * math.sqrt(
            2.0 * grown / (count * count * _RHO2) * math.log1p(math.sqrt(grown) / (2.0 * ALARM))
        )
        return self.total / self.rounds + width < -doubt * self.plain / self.rounds
