"""What a speculative round costs: of one slot, or of several that share a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from autospec.tuning.overhead import (
    LEAST_SHARE,
    NO_OVERHEAD,
    DraftCost,
    DraftKind,
    RoundOverhead,
    fit_overhead,
    verifying,
)
from autospec.tuning.surface import CostSurface, Estimate, Holdout, StepTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "NO_OVERHEAD",
    "CostSurface",
    "DraftCost",
    "DraftKind",
    "Estimate",
    "Holdout",
    "RoundCost",
    "RoundOverhead",
    "SharedBatch",
    "StepTime",
    "fit_overhead",
    "round_cost",
    "simple_cost",
]


@dataclass(frozen=True, eq=False)
class SharedBatch:
    """Times in ms of a step in which `s` slots draft side by side and each stops for itself.

    - `verify_ms` (s·K+1,): a batch that verifies r drafted tokens of all slots together;
    - `draft_ms` (s+1,): a draft step in which n slots take part; `draft_ms[0]` is 0.
    """

    verify_ms: Floats
    draft_ms: Floats

    @property
    def slots(self) -> int:
        return len(self.draft_ms) - 1

    def mean_ms(self, kept: Floats, paying: Floats) -> Floats:
        """The expected time of a step (R,) for each of R rules that all slots follow.

        `kept` (R, K+1) are the chances that a slot keeps k tokens, `paying` (R, K) those that it
        pays draft step i+1. Slots are independent: the tokens of all of them are the s-fold
        convolution of `kept` with itself, and how many take part in a step is binomial.
        """
        verify = sums(kept, self.slots) @ self.verify_ms[: self.slots * (kept.shape[1] - 1) + 1]
        time: Floats = verify + (binomials(self.slots, paying) @ self.draft_ms).sum(axis=1)
        return time


def sums(chances: Floats, count: int) -> Floats:
    """Distributions (R, count·K+1) of the sum of `count` independent draws from `chances`
    (R, K+1), by Fourier transform."""
    size = count * (chances.shape[1] - 1) + 1
    transformed = np.fft.rfft(chances, size, axis=1) ** count
    return np.maximum(np.fft.irfft(transformed, size, axis=1), 0.0)


def binomials(count: int, chances: Floats) -> Floats:
    """The chances (…, count+1) that 0…count of `count` slots do what each does with `chances`
    (…)."""
    n = np.arange(count + 1)
    ways = np.array([math.comb(count, k) for k in n], dtype=np.float64)
    p = np.clip(chances, 0.0, 1.0)[..., np.newaxis]
    table: Floats = ways * p**n * (1.0 - p) ** (count - n)
    return table


@dataclass(frozen=True, eq=False)
class RoundCost:
    """All that a round of up to `n_max` = K drafted tokens can cost, in ms.

    - `plain_ms`: one token of the target alone, no draft loaded;
    - `draft_ms` (K+1,): all drafting once j draft steps are paid; `draft_ms[0]` is 0;
    - `verify_ms` (K+1,): verification of k drafted tokens, everything but drafting;
    - `spread_ms` (K+1,): half interquartile range of a round that verifies k;
    - `replay_ms` (K+1,): what is paid on top when only a of more drafted tokens are accepted:
      zero, except for targets that cannot drop a suffix of their context (recurrent and hybrid
      models), which restore a checkpoint and decode the a+1 tokens again.

    `slots` is how many sequences such a round serves at once; rates count all of them. The arrays
    are for slots that stop together; `shared` has what it costs when each stops for itself, None
    where that is no different or not known (one slot, block drafts, replays).
    """

    plain_ms: float
    draft_ms: Floats
    verify_ms: Floats
    spread_ms: Floats
    replay_ms: Floats
    slots: int = 1
    extrapolated: bool = False
    shared: SharedBatch | None = None

    def __post_init__(self) -> None:
        size = self.verify_ms.shape
        arrays = (self.draft_ms, self.verify_ms, self.spread_ms, self.replay_ms)
        if len(size) != 1 or size[0] < 1 or any(array.shape != size for array in arrays):
            raise ValueError("costs of a round are arrays of one length, n_max + 1")
        if not (math.isfinite(self.plain_ms) and self.plain_ms > 0 and self.slots >= 1):
            raise ValueError("plain decoding takes a positive, finite time")
        if not all(np.all(np.isfinite(array) & (array >= 0)) for array in arrays):
            raise ValueError("costs of a round are finite and not negative")
        if np.any(self.verify_ms <= 0):
            raise ValueError("verification takes a positive time")
        if self.draft_ms[0] != 0 or np.any(np.diff(self.draft_ms) < 0):
            raise ValueError("drafting starts at 0 ms and never falls with the steps paid")
        shared = self.shared
        if shared is not None and (
            shared.draft_ms.shape != (self.slots + 1,)
            or shared.verify_ms.shape != (self.slots * self.n_max + 1,)
        ):
            raise ValueError("a shared batch has times for 0…slots that draft, and all they keep")

    @property
    def n_max(self) -> int:
        return len(self.verify_ms) - 1

    @property
    def plain_rate(self) -> float:
        """Tokens per second of plain decoding without a draft."""
        return 1000.0 * self.slots / self.plain_ms

    @property
    def zero_rate(self) -> float:
        """Tokens per second with the draft loaded and no draft step taken (live k = 0)."""
        return 1000.0 * self.slots / float(self.verify_ms[0])

    def kept(self, k: int) -> float:
        """Cost in ms of stopping with k tokens: the step that showed k+1 is paid as well."""
        return float(self.draft_ms[min(k + 1, self.n_max)] + self.verify_ms[k])

    def truncated(self, n_max: int) -> RoundCost:
        """The same costs for a child launched with a smaller `n_max`."""
        if not 0 <= n_max <= self.n_max:
            raise ValueError(f"n_max {n_max} is outside 0..{self.n_max}")
        end, shared = n_max + 1, self.shared
        return replace(
            self,
            draft_ms=self.draft_ms[:end],
            verify_ms=self.verify_ms[:end],
            spread_ms=self.spread_ms[:end],
            replay_ms=self.replay_ms[:end],
            shared=shared
            and SharedBatch(shared.verify_ms[: self.slots * n_max + 1], shared.draft_ms),
        )

    def shifted(self, spreads: float) -> RoundCost:
        """Rounds dearer by `spreads` times their spread (cheaper if negative); plain as it is."""
        moved = np.maximum(self.verify_ms + spreads * self.spread_ms, LEAST_SHARE * self.verify_ms)
        shared = self.shared
        if shared is not None:
            kept = np.arange(len(shared.verify_ms)) / self.slots
            factor = np.interp(kept, np.arange(self.n_max + 1), moved / self.verify_ms)
            shared = SharedBatch(shared.verify_ms * factor, shared.draft_ms)
        return replace(self, verify_ms=moved, shared=shared)


def simple_cost(
    target_ms: Sequence[float], draft_step_ms: float = 0.0, *, plain_ms: float | None = None
) -> RoundCost:
    """A `RoundCost` from batch times alone: `target_ms[k]` verifies k drafted tokens.

    Each draft step costs `draft_step_ms`; plain decoding costs `target_ms[0]` if not given.
    """
    verify = np.asarray(target_ms, dtype=np.float64)
    zeros = np.zeros_like(verify)
    return RoundCost(
        plain_ms=float(verify[0]) if plain_ms is None else plain_ms,
        draft_ms=draft_step_ms * np.arange(len(verify), dtype=np.float64),
        verify_ms=verify,
        spread_ms=zeros,
        replay_ms=zeros,
    )


def round_cost(
    target: CostSurface,
    draft: DraftCost,
    *,
    n_max: int,
    depth: float = 0.0,
    slots: int = 1,
    overhead: RoundOverhead = NO_OVERHEAD,
    restore_ms: float | None = None,
) -> RoundCost:
    """Costs of rounds of up to `n_max` drafted tokens in each of `slots` slots at `depth`.

    All busy slots draft and verify in one batch. `restore_ms` is the time to restore a
    checkpoint for targets that cannot drop a suffix of their context; None where they can.
    """
    batches = np.arange(1, n_max + 2)
    own = target.steps(batches, depth, slots)[0]
    verify, spread, beyond = verifying(
        target, draft, batches, depth=depth, slots=slots, overhead=overhead
    )
    # A block is paid whole with its first step; else every token is a step like the first.
    block = draft.kind == "block"
    steps = np.minimum(np.arange(n_max + 1.0), 1.0 if block else n_max)
    drafting = draft.drafting(n_max if block else min(n_max, 1), depth, slots)
    factor = overhead.draft_factor
    draft_spread = np.hypot(factor * steps * drafting.spread, overhead.draft_spread_ms)
    shared = None
    if slots > 1 and draft.kind != "block" and restore_ms is None:
        mean = 1.0 + np.arange(slots * n_max + 1) / slots
        taking_part = [draft.drafting(1, depth, busy).value for busy in range(1, slots + 1)]
        shared = SharedBatch(
            verifying(target, draft, mean, depth=depth, slots=slots, overhead=overhead)[0],
            factor * np.array([0.0, *taking_part]),
        )
    return RoundCost(
        plain_ms=float(own[0]),
        draft_ms=factor * steps * drafting.value,
        verify_ms=verify,
        spread_ms=np.hypot(spread, draft_spread),
        replay_ms=np.zeros(n_max + 1) if restore_ms is None else restore_ms + own,
        slots=slots,
        extrapolated=bool(np.any(beyond)) or drafting.extrapolated,
        shared=shared,
    )
