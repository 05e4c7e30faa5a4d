"""Has the cost or the acceptance changed? Sequential detection with a stated false-alarm rate.

Each round is compared with what the model in force predicted for it, and the difference x (see
`cost_surprise`, `acceptance_surprise`) is bounded by clipping to ±bound. While the model holds,
the mean of x given everything before is within ±tolerance; nothing else is assumed: no
distribution, no constant variance, no independence. For such x and any bet 0 < λ < 1

    e = 1 + λ·(x − tolerance) / (bound + tolerance)

is never negative and has a conditional mean of at most 1 (testing by betting: Waudby-Smith and
Ramdas, "Estimating means of bounded random variables by betting", 2023). When the change came
is unknown, so one bet is started at every round; their sum obeys the Shiryaev-Roberts recursion

    M ← (M + 1)·e,

for which E[M at any stopping time] ≤ E[that time]. Alarming at M ≥ run_length therefore gives
at least `run_length` rounds between false alarms on average, and a false alarm within n rounds
with probability at most n / run_length (Shin, Ramdas and Rinaldo, "E-detectors", 2023). An
average of several such M keeps both: here over bets λ, each in both directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

Direction = Literal["up", "down"]

BETS = (0.05, 0.15, 0.4, 0.9)
_CEILING = 1e300


@dataclass(frozen=True)
class Bet:
    """One bet: `evidence` is M above; `likelihood` is the largest product of e over all starts,
    and `since` the rounds since the start that reaches it (Page's CUSUM)."""

    evidence: float = 0.0
    likelihood: float = 1.0
    since: int = 0

    def observe(self, e: float) -> Bet:
        fresh = self.likelihood <= 1
        return Bet(
            evidence=min((self.evidence + 1) * e, _CEILING),
            likelihood=min(e if fresh else self.likelihood * e, _CEILING),
            since=1 if fresh else self.since + 1,
        )


@dataclass(frozen=True)
class Detector:
    """Watches one stream of surprises; a value, replaced by `observe`.

    `tolerance` is the drift of the mean that is no reason to tune again, `bound` where
    surprises are clipped, `run_length` the least average number of rounds to a false alarm.
    """

    tolerance: float
    bound: float
    run_length: float = 100_000.0
    rounds: int = 0
    up: tuple[Bet, ...] = (Bet(),) * len(BETS)
    down: tuple[Bet, ...] = (Bet(),) * len(BETS)

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < self.bound < math.inf:
            raise ValueError("a detector needs 0 <= tolerance < bound")
        if not 1 <= self.run_length < _CEILING:
            raise ValueError("a detector needs a finite run length of at least one round")

    def observe(self, surprise: float) -> Self:
        """The detector after one more round. A surprise that is not a number is refused."""
        if math.isnan(surprise):
            raise ValueError("a surprise that is not a number says nothing")
        x = min(max(surprise, -self.bound), self.bound)
        return replace(
            self, rounds=self.rounds + 1, up=self._bet(self.up, x), down=self._bet(self.down, -x)
        )

    def _bet(self, bets: tuple[Bet, ...], x: float) -> tuple[Bet, ...]:
        gain = (x - self.tolerance) / (self.bound + self.tolerance)
        return tuple(bet.observe(1 + size * gain) for size, bet in zip(BETS, bets, strict=True))

    @property
    def evidence(self) -> float:
        """The average of all bets; an alarm at `run_length`."""
        return sum(bet.evidence for bet in self.up + self.down) / (2 * len(BETS))

    @property
    def alarm(self) -> Direction | None:
        """Where the mean went, once the evidence suffices; until then None."""
        if self.evidence < self.run_length:
            return None
        up, down = (sum(bet.evidence for bet in bets) for bets in (self.up, self.down))
        return "up" if up >= down else "down"

    @property
    def since(self) -> int:
        """For how many rounds the change has lasted, by the bet that won most on it."""
        return max(self.up + self.down, key=lambda bet: bet.likelihood).since

    def reset(self) -> Self:
        """The detector for a model that was just fitted again."""
        return type(self)(self.tolerance, self.bound, self.run_length)


def watch_cost(run_length: float = 100_000.0) -> Detector:
    """For `cost_surprise`: 5 % dearer or cheaper is no change; single spikes count for 1.65x."""
    return Detector(tolerance=0.05, bound=0.5, run_length=run_length)


def watch_acceptance(run_length: float = 100_000.0) -> Detector:
    """For `acceptance_surprise`: five more or fewer accepted of 100 drafted are no change."""
    return Detector(tolerance=0.05, bound=1.0, run_length=run_length)


def cost_surprise(observed_ms: float, predicted_ms: float) -> float:
    """`log(observed / predicted)` of one round's time; ValueError unless both are positive."""
    if not (0 < observed_ms < math.inf and 0 < predicted_ms < math.inf):
        raise ValueError("a round's time is positive and finite")
    return math.log(observed_ms / predicted_ms)


def acceptance_surprise(accepted: int, survival: Sequence[float]) -> float:
    """`(accepted − Σ S_i) / drafted` of one round, in [−1, 1].

    `survival[i]` is the predicted probability that the first i+1 drafted tokens are accepted,
    for exactly the tokens that were drafted: `Σ S_i` is the expected number accepted.
    """
    if not 0 <= accepted <= len(survival) or not survival:
        raise ValueError("a round accepts between none and all of one or more drafted tokens")
    if not all(0 <= s <= 1 for s in survival):
        raise ValueError("survival is a probability")
    return (accepted - math.fsum(survival)) / len(survival)
