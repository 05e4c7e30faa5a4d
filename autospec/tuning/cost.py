"""What a speculative round costs: drafting, verification, and what live rounds add to both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from autospec.tuning.surface import CostSurface, Estimate, Holdout, StepTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from autospec.tuning.observations import Round

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
    "StepTime",
    "fit_overhead",
    "round_cost",
    "simple_cost",
]

DraftKind = Literal["autoregressive", "block", "ngram", "head", "none"]


@dataclass(frozen=True)
class DraftCost:
    """What drafting costs, by the kind of draft.

    - `autoregressive`, `head`: every drafted token is one step of the draft.
    - `block`: one pass makes the whole block, so the first step pays for all of them.
    - `ngram`, `none`: nothing worth counting beside the target's step.

    `surface` is the draft's own batch cost. Where it is None the cost is taken as zero and
    marked as extrapolated; live rounds then teach the rest (`fit_overhead`).
    """

    kind: DraftKind
    surface: CostSurface | None = None

    def drafting(self, steps: int, depth: float = 0.0, slots: int = 1) -> Estimate:
        """Time of `steps` draft steps in ms; for a block draft, of a block of `steps` tokens."""
        if steps < 0:
            raise ValueError("the number of draft steps is not negative")
        if self.kind in {"ngram", "none"} or steps == 0:
            return Estimate(0.0, 0.0, extrapolated=False)
        if self.surface is None:
            return Estimate(0.0, 0.0, extrapolated=True)
        if self.kind == "block":
            return self.surface.step(steps, depth, slots)
        one = self.surface.step(1, depth, slots)
        return Estimate(steps * one.value, steps * one.spread, one.extrapolated)

    def reevaluation(self, batch: int, depth: float = 0.0, slots: int = 1) -> Estimate:
        """Time in ms of the draft's own evaluation of a verified batch of `batch` tokens."""
        if self.kind in {"ngram", "none"}:
            return Estimate(0.0, 0.0, extrapolated=False)
        if self.surface is None:
            return Estimate(0.0, 0.0, extrapolated=True)
        return self.surface.step(batch, depth, slots)


@dataclass(frozen=True)
class RoundOverhead:
    """What live rounds cost over the benchmark's steps.

    Drafting is `draft_factor` times the predicted time. Verification of k drafted tokens takes
    `verify_fixed_ms + verify_token_ms · (k + 1)` more than target and re-evaluation alone.
    The spreads are half interquartile ranges of what remains, in ms.
    """

    draft_factor: float = 1.0
    verify_fixed_ms: float = 0.0
    verify_token_ms: float = 0.0
    draft_spread_ms: float = 0.0
    verify_spread_ms: float = 0.0


NO_OVERHEAD = RoundOverhead()

FEW_ROUNDS = 4
"""Rounds of other sizes than the usual one that it takes to draw a line through them."""


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

    `slots` is how many sequences such a round serves at once; rates count all of them.
    """

    plain_ms: float
    draft_ms: Floats
    verify_ms: Floats
    spread_ms: Floats
    replay_ms: Floats
    slots: int = 1
    extrapolated: bool = False

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
        end = n_max + 1
        return RoundCost(
            self.plain_ms,
            self.draft_ms[:end],
            self.verify_ms[:end],
            self.spread_ms[:end],
            self.replay_ms[:end],
            self.slots,
            self.extrapolated,
        )

    def shifted(self, spreads: float) -> RoundCost:
        """Rounds dearer by `spreads` times their spread (cheaper if negative); plain as it is."""
        verify = np.maximum(self.verify_ms + spreads * self.spread_ms, 0.05 * self.verify_ms)
        return RoundCost(
            self.plain_ms,
            self.draft_ms,
            verify,
            self.spread_ms,
            self.replay_ms,
            self.slots,
            self.extrapolated,
        )


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
    verify, verify_spread, beyond = target.steps(batches, depth, slots)
    replay = np.zeros(n_max + 1) if restore_ms is None else restore_ms + verify
    plain = float(verify[0])
    again = [draft.reevaluation(int(batch), depth, slots) for batch in batches]
    verify = verify + np.array([one.value for one in again])
    # A live round runs the steps that were timed; what it adds was seen at a few sizes only.
    added = overhead.verify_fixed_ms + overhead.verify_token_ms * batches
    verify = verify + np.maximum(added, -verify_spread)
    if draft.kind == "block":
        whole = draft.drafting(n_max, depth, slots)
        drafting = [draft.drafting(0), *[whole] * n_max]
    else:
        drafting = [draft.drafting(steps, depth, slots) for steps in range(n_max + 1)]
    spread = np.sqrt(
        verify_spread**2
        + np.array([one.spread for one in again]) ** 2
        + (overhead.draft_factor * np.array([one.spread for one in drafting])) ** 2
        + overhead.verify_spread_ms**2
        + overhead.draft_spread_ms**2
    )
    return RoundCost(
        plain_ms=plain,
        draft_ms=overhead.draft_factor * np.array([one.value for one in drafting]),
        verify_ms=np.maximum(verify, 0.05 * plain),
        spread_ms=spread,
        replay_ms=replay,
        slots=slots,
        extrapolated=bool(np.any(beyond)) or any(one.extrapolated for one in again + drafting),
    )


def fit_overhead(
    rounds: Sequence[Round],
    target: CostSurface,
    draft: DraftCost,
    depth: float = 0.0,
    slots: int = 1,
) -> RoundOverhead:
    """Learn from live rounds what they cost over the benchmark's steps.

    Drafting: the median ratio over the longest drafts seen (a shorter one may have paid a step
    that it did not keep). Verification: the residual over `T(k+1)` and re-evaluation is a line
    in the batch, its slope the median over pairs of rounds with different batches (Theil and
    Sen), its constant the median of what remains. Where fewer than `FEW_ROUNDS` rounds had
    another than the usual size, the residual is taken to grow with the batch from nothing: each
    verified token is sampled, and the rest of a round costs little.
    Rounds without times teach nothing; with none at all the overhead is zero.
    """
    drafted = [r for r in rounds if r.draft_ms is not None and r.drafted > 0]
    longest = max((r.drafted for r in drafted), default=0)
    expected = draft.drafting(longest, depth, slots).value
    factor, draft_spread = 1.0, 0.0
    seen = [r.draft_ms for r in drafted if r.drafted == longest and r.draft_ms is not None]
    if seen and expected > 0:
        low, middle, high = np.quantile(seen, [0.25, 0.5, 0.75])
        factor, draft_spread = float(middle) / expected, float(high - low) / 2
    timed = [(r.drafted + 1, r.verify_ms) for r in rounds if r.verify_ms is not None]
    if not timed:
        return RoundOverhead(draft_factor=factor, draft_spread_ms=draft_spread)
    sizes = sorted({batch for batch, _ in timed})
    known = {
        size: target.step(size, depth, slots).value + draft.reevaluation(size, depth, slots).value
        for size in sizes
    }
    residuals = {s: [ms - known[s] for b, ms in timed if b == s] for s in sizes}
    counts = {size: len(values) for size, values in residuals.items()}
    medians = {size: float(np.median(values)) for size, values in residuals.items()}
    usual = max(sizes, key=lambda size: counts[size])
    if len(timed) - counts[usual] >= FEW_ROUNDS:
        slope = _median_slope(medians, counts)
        rest = np.array([ms - known[b] - slope * b for b, ms in timed])
        fixed = float(np.median(rest))
    else:
        slope, fixed = medians[usual] / usual, 0.0
        rest = np.array([ms - known[b] - slope * b for b, ms in timed])
    low, high = np.quantile(rest, [0.25, 0.75])
    return RoundOverhead(factor, fixed, slope, draft_spread, float(high - low) / 2)


def _median_slope(medians: dict[int, float], counts: dict[int, int]) -> float:
    """Weighted median of the slopes between batch sizes, each pair by its product of counts."""
    sizes = sorted(medians)
    pairs = [(a, b) for a in sizes for b in sizes if a < b]
    if not pairs:
        return 0.0
    slopes = np.array([(medians[b] - medians[a]) / (b - a) for a, b in pairs])
    weights = np.array([counts[a] * counts[b] for a, b in pairs], dtype=np.float64)
    order = np.argsort(slopes)
    middle = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2))
    return float(slopes[order[min(middle, len(order) - 1)]])
