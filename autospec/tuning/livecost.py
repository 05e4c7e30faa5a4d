"""What live rounds teach about costs: the calibration is the prior, rounds correct it.

A calibration may be wrong in production: other clocks, a busy neighbour, longer contexts, sampling
that it did not do. Verification and drafting have a `Correction` each. Where a detector
(`drift.watch_cost`) says that costs have changed, what is from before is forgotten.

What matters to decisions is a round against plain decoding, whose time is corrected as that of a
batch of one token a slot. So the spread of a round's cost is that of f(round) − f(plain), and the
calibration's own spread fades as far as the posterior does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from autospec.tuning.correction import Correction, place
from autospec.tuning.cost import RoundCost, SharedBatch, round_cost
from autospec.tuning.drift import Detector, cost_surprise, watch_cost
from autospec.tuning.overhead import NO_OVERHEAD, DraftCost, RoundOverhead, verifying

if TYPE_CHECKING:
    from autospec.tuning.observations import Round
    from autospec.tuning.surface import CostSurface

NEAR = 0.5
"""Where the posterior spread is under this share of the prior's, costs count as measured."""

LARGEST = 1e7
"""No count of tokens or slots and no time in ms is larger; no verification shorter than 1/this."""

ERRORS = 200
"""So many of the last steps count for `prediction_error`."""


@dataclass(frozen=True)
class TimedStep:
    """A step of the server as production shows it: one draft and one verification, ms.

    `slots` slots were busy, `depth` tokens deep on average, and `drafted` tokens were verified in
    all of them together; `steps` draft steps were paid (by the slot that paid most), which took
    `draft_ms` in all. `verify_ms` is everything else.
    """

    slots: int
    depth: float
    drafted: float
    verify_ms: float
    steps: int = 0
    draft_ms: float = 0.0

    @classmethod
    def of(cls, rounds: Sequence[Round], slots: int, depth: float) -> TimedStep | None:
        """From the rounds that the slots made in one step, or those of them that were seen.

        None where no round has its times, or times that cannot be.
        """
        verify = [one.verify_ms for one in rounds if one.verify_ms is not None]
        draft = [one.draft_ms for one in rounds if one.draft_ms is not None]
        if not verify or not 0 < max(verify) <= LARGEST:
            return None
        drafting = max(draft, default=0.0)
        timed = 0 < drafting <= LARGEST
        steps = max(one.drafted + (one.cut_p is not None) for one in rounds)
        return cls(
            slots=max(slots, len(rounds)),
            depth=depth,
            drafted=max(slots, len(rounds)) * float(np.mean([one.drafted for one in rounds])),
            verify_ms=max(verify),
            steps=steps if timed else 0,
            draft_ms=drafting if timed else 0.0,
        )


@dataclass(frozen=True, eq=False)
class LiveCost:
    """What steps cost by the calibration and by the live steps since; replaced by `observe`.

    `errors` are |predicted − measured| / measured of the last `ERRORS` steps, each predicted
    before it was learned from; `alarms` counts the changes of costs that were noticed.
    """

    target: CostSurface
    draft: DraftCost
    overhead: RoundOverhead = NO_OVERHEAD
    verifying: Correction = field(default_factory=Correction)
    drafting: Correction = field(default_factory=Correction)
    errors: tuple[float, ...] = ()
    changed: Detector = field(default_factory=watch_cost)
    alarms: int = 0

    def observe(self, steps: Sequence[TimedStep]) -> LiveCost:
        """The belief after `steps`, the oldest first; those of impossible values are left out."""
        told = [step for step in steps if _possible(step)]
        if not told:
            return self
        known, known_draft = np.array([self._calibrated(step) for step in told]).T
        slots, depth, drafted, verify, draft = np.array(
            [(s.slots, s.depth, s.drafted, s.verify_ms, s.draft_ms) for s in told], dtype=np.float64
        ).T
        x, drafting_x = place(slots + drafted, depth, slots), place(slots, depth, slots)
        predicted = known * self.verifying.factor(x)
        predicted += known_draft * self.drafting.factor(drafting_x)
        errors = np.abs(predicted / (verify + draft) - 1.0)
        timed = (draft > 0) & (known_draft > 0)
        learned = replace(
            self,
            verifying=self.verifying.add(x, np.log(verify) - np.log(known)),
            drafting=self.drafting.add(
                drafting_x[timed], np.log(draft[timed]) - np.log(known_draft[timed])
            ),
            errors=(*self.errors, *errors.tolist())[-ERRORS:],
        )
        return _watched(learned, (verify + draft).tolist(), predicted.tolist())

    @property
    def observed(self) -> int:
        """How many steps were learned from."""
        return self.verifying.seen

    @property
    def prediction_error(self) -> float | None:
        """Median relative error of the last steps' predicted times; None before the first."""
        return float(np.median(self.errors)) if self.errors else None

    def round_cost(self, *, n_max: int, depth: float = 0.0, slots: int = 1) -> RoundCost:
        """Costs of rounds as `cost.round_cost` gives them, corrected by what was seen."""
        cost = round_cost(
            self.target,
            self.draft,
            n_max=n_max,
            depth=depth,
            slots=slots,
            overhead=self.overhead,
        )
        if not self.observed:
            return cost
        x = place(slots * (1.0 + np.arange(n_max + 1)), depth, slots)
        factor = self.verifying.factor(x)
        spread, prior = self.verifying.spread(x, x[:1])
        doubt, most = self.verifying.spread(x, x[:0])
        verify = factor * cost.verify_ms
        drafting = self.drafting.factor(place([slots], depth, slots))
        remains = doubt / most
        return replace(
            cost,
            plain_ms=cost.plain_ms * float(factor[0]),
            draft_ms=float(drafting[0]) * cost.draft_ms,
            verify_ms=verify,
            spread_ms=np.hypot(verify * np.minimum(spread, prior), remains * cost.spread_ms),
            replay_ms=factor * cost.replay_ms,
            extrapolated=cost.extrapolated and bool(np.any(remains > NEAR)),
            shared=cost.shared and self._shared(cost.shared, depth),
        )

    def _shared(self, shared: SharedBatch, depth: float) -> SharedBatch:
        totals = shared.slots + np.arange(len(shared.verify_ms), dtype=np.float64)
        busy = np.arange(1, shared.slots + 1)
        drafting = self.drafting.factor(place(busy, depth, busy))
        return SharedBatch(
            shared.verify_ms * self.verifying.factor(place(totals, depth, shared.slots)),
            shared.draft_ms * np.concatenate([[1.0], drafting]),
        )

    def _calibrated(self, step: TimedStep) -> tuple[float, float]:
        """Calibrated time of verification and of drafting."""
        batch = 1.0 + step.drafted / step.slots
        verify = verifying(
            self.target,
            self.draft,
            [batch],
            depth=step.depth,
            slots=step.slots,
            overhead=self.overhead,
        )[0]
        if step.draft_ms <= 0:
            return float(verify[0]), 0.0
        draft = self.draft.drafting(step.steps, step.depth, step.slots).value
        return float(verify[0]), draft * self.overhead.draft_factor


def _watched(cost: LiveCost, measured: Sequence[float], predicted: Sequence[float]) -> LiveCost:
    """Forget what was before a change of costs, if there was one."""
    changed = cost.changed
    for ms, expected in zip(measured, predicted, strict=True):
        changed = changed.observe(cost_surprise(ms, expected))
    if changed.alarm is None:
        return replace(cost, changed=changed)
    return replace(
        cost,
        verifying=cost.verifying.last(changed.since),
        drafting=cost.drafting.last(changed.since),
        changed=changed.reset(),
        alarms=cost.alarms + 1,
    )


def _possible(step: TimedStep) -> bool:
    """Whether a server can have made it; also keeps every ratio a number."""
    numbers = (step.depth, step.drafted, step.verify_ms, step.draft_ms)
    if not all(0 <= number <= LARGEST for number in numbers):
        return False
    return step.verify_ms >= 1 / LARGEST and 1 <= step.slots <= LARGEST and step.steps >= 0
