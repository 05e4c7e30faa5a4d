"""What drafting costs, and what a live round takes over the steps of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from autospec.tuning.surface import CostSurface, Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from autospec.tuning.observations import Round

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

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

    def reevaluations(
        self, batches: ArrayLike, depth: float = 0.0, slots: int = 1
    ) -> tuple[Floats, Floats, Bools]:
        """Time in ms of the draft's own evaluation of verified batches of `batches` tokens a slot:
        values, spreads, extrapolated, each `(len,)`."""
        zeros = np.zeros_like(np.asarray(batches, dtype=np.float64))
        if self.kind in {"ngram", "none"}:
            return zeros, zeros, zeros > 0
        if self.surface is None:
            return zeros, zeros, zeros == 0
        return self.surface.steps(batches, depth, slots)


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


def verifying(
    target: CostSurface,
    draft: DraftCost,
    batches: ArrayLike,
    *,
    depth: float = 0.0,
    slots: int = 1,
    overhead: RoundOverhead = NO_OVERHEAD,
) -> tuple[Floats, Floats, Bools]:
    """Time in ms of verifying `batches` tokens in each of `slots` slots, everything but drafting:
    the target's batch, the draft's evaluation of it and what a live round adds.

    Values, spreads, extrapolated, each `(len,)`. `batches` may be means: 2.5 tokens in each of two
    slots are a batch of 5.
    """
    batch = np.asarray(batches, dtype=np.float64)
    own, own_spread, beyond = target.steps(batch, depth, slots)
    again, again_spread, again_beyond = draft.reevaluations(batch, depth, slots)
    # A live round runs the steps that were timed; what it adds was seen at a few sizes only.
    added = np.maximum(overhead.verify_fixed_ms + overhead.verify_token_ms * batch, -own_spread)
    spread = np.sqrt(own_spread**2 + again_spread**2 + overhead.verify_spread_ms**2)
    value = np.maximum(own + again + added, LEAST_SHARE * own.min())
    return value, spread, beyond | again_beyond


LEAST_SHARE = 0.05
"""No correction makes verification cheaper than this share of a plain step."""

FEW_ROUNDS = 4
"""Rounds of other sizes than the usual one that it takes to draw a line through them."""


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
    verified token is sampled, and the rest of a round costs little. What a round adds has a part
    for itself and one for each token, and neither makes it cheaper where the whole makes it dearer:
    a slope beyond that is an error of the benchmark's steps, and would be carried on to batches
    that no round had.
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
    times = verifying(target, draft, sizes, depth=depth, slots=slots)[0]
    known = dict(zip(sizes, times.tolist(), strict=True))
    residuals = {s: [ms - known[s] for b, ms in timed if b == s] for s in sizes}
    counts = {size: len(values) for size, values in residuals.items()}
    medians = {size: float(np.median(values)) for size, values in residuals.items()}
    usual = max(sizes, key=lambda size: counts[size])
    if len(timed) - counts[usual] >= FEW_ROUNDS:
        whole = medians[usual] / usual
        slope = float(np.clip(_median_slope(medians, counts), min(whole, 0.0), max(whole, 0.0)))
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
