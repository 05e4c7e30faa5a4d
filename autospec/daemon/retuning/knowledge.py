"""What is believed of one model: acceptance and costs, moved by every round. Values, no clock.

The calibration is where it starts. Live rounds tell both acceptance (by what the draft reported)
and times. Counters tell the level of acceptance under the flags in force, and only the mean time
of a round: what they say of acceptance is taken out first, and the rest is cost. When a detector
finds that acceptance or cost has changed, what was learned before is forgotten; that begins a new
`epoch`.

Plain decoding is what the calibration measured, moved only by what a child without a draft was
seen to do: rounds without a draft are no plain decoding while a draft model is loaded, which
evaluates every batch as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autospec.calibration.result import Calibration
from autospec.daemon.retuning.costs import Costs
from autospec.daemon.retuning.steps import Step
from autospec.daemon.setting import Basis
from autospec.daemon.watch import NOTHING, add
from autospec.engine.launch import Speculation
from autospec.tuning.drift import Detector, acceptance_surprise, watch_acceptance
from autospec.tuning.observations import Counters, Round
from autospec.tuning.replay import calibrated
from autospec.tuning.survival import SurvivalModel
from autospec.tuning.tilt import tilted

WINDOW = 256
"""Rounds that are kept to learn from again once acceptance has changed."""

LEAST = 16
"""At least so many of them are believed then."""

MOST_COUNTED = 600
"""Rounds that counters are summed over; older spans are forgotten."""


@dataclass(frozen=True)
class Knowledge:
    """All of it. `counted` are spans of counters under `counted_under`; `told` says what the last
    update found."""

    costs: Costs
    belief: SurvivalModel
    recent: tuple[Round, ...] = ()
    counted: tuple[Counters, ...] = ()
    counted_under: Speculation | None = None
    acceptance: Detector = field(default_factory=watch_acceptance, repr=False)
    epoch: int = 0
    told: tuple[str, ...] = ()

    @classmethod
    def of(cls, calibration: Calibration, longest: int) -> Knowledge:
        """What the calibration showed, for drafts of up to `longest` tokens."""
        belief = SurvivalModel.from_rounds(calibration.rounds, longest)
        return cls(Costs.of(calibration, longest), belief)

    @property
    def longest(self) -> int:
        return self.costs.longest

    @property
    def survival(self) -> SurvivalModel:
        """Acceptance: what rounds showed, moved to what was counted under flags."""
        under = self.counted_under
        if under is None or not self.counted:
            return self.belief
        counters = total(self.counted)
        return tilted(
            self.belief, counters, n_max=under.n_max, n_min=under.n_min, p_min=under.p_min
        )

    def after_steps(self, steps: Sequence[Step]) -> Knowledge:
        """With steps that the live library reported."""
        timed = [step for step in steps if step.whole_ms > 0.0]
        known = self.with_costs(self.costs.after_steps(timed))
        return known.with_accepted([one.round for step in steps for one in step.rounds])

    def after_span(self, span: Counters, basis: Basis, under: Speculation) -> Knowledge:
        """With what an engine under the flags `under` counted at about `basis`."""
        if not span.predicted or span.predicted_seconds <= 0.0:
            return replace(self, told=())
        if not under.on:
            rate = span.predicted / span.predicted_seconds * basis.busy
            ratio = self.costs.at(basis).plain_rate / rate * self.costs.plain.factor
            return replace(self, costs=self.costs.with_plain(ratio, span.predicted), told=())
        if not span.tells_drafts:
            return replace(self, told=())
        known = self.with_costs(self.costs.after_span(span, basis))
        return known.with_counts(span, under)

    def with_costs(self, costs: Costs) -> Knowledge:
        """With other costs; where they were found to have changed, an epoch begins."""
        if costs.changes == self.costs.changes:
            return replace(self, costs=costs, told=())
        told = "the cost of rounds has changed: it is learned anew"
        return replace(self, costs=costs, epoch=self.epoch + 1, told=(told,))

    def with_accepted(self, rounds: Sequence[Round]) -> Knowledge:
        """With what was accepted in live rounds."""
        telling = [one for one in rounds if one.drafted or one.cut_p is not None]
        if not telling:
            return self
        detector = self.acceptance
        for one in telling:
            if one.drafted:
                p = np.array([one.p[: self.longest]])
                survival = np.clip(np.cumprod(calibrated(self.belief, p)[0]), 0.0, 1.0)
                accepted = min(one.accepted, len(survival))
                detector = detector.observe(acceptance_surprise(accepted, survival.tolist()))
        recent = (*self.recent, *telling)[-WINDOW:]
        known = replace(self, recent=recent, counted=(), counted_under=None)
        if (alarm := detector.alarm) is None:
            return replace(known, belief=self.belief.update(telling), acceptance=detector)
        belief = SurvivalModel.from_rounds(recent[-max(detector.since, LEAST) :], self.longest)
        return replace(
            known,
            belief=belief,
            acceptance=detector.reset(),
            epoch=self.epoch + 1,
            told=(*self.told, f"acceptance went {alarm}: what was learned before is forgotten"),
        )

    def with_counts(self, span: Counters, under: Speculation) -> Knowledge:
        """With the accepted tokens of a span of counters."""
        detector = self.acceptance
        if span.drafted:
            drafts = max(span.drafts, 1)
            expected = _expected_accepts(self.survival, span.drafted / drafts, under)
            share = (span.accepted / drafts - expected) / max(span.drafted / drafts, 1.0)
            detector = detector.observe(float(np.clip(share, -1.0, 1.0)))
        before = self.counted if self.counted_under == under else ()
        spans = (*before, span)
        while len(spans) > 1 and sum(one.drafts for one in spans[1:]) >= MOST_COUNTED:
            spans = spans[1:]
        known = replace(self, counted=spans, counted_under=under, acceptance=detector)
        if (alarm := detector.alarm) is None:
            return known
        return replace(
            known,
            counted=spans[-max(detector.since, 1) :],
            acceptance=detector.reset(),
            epoch=self.epoch + 1,
            told=(*self.told, f"acceptance went {alarm}: what was counted before is forgotten"),
        )


def total(spans: Sequence[Counters]) -> Counters:
    """All spans together."""
    whole = NOTHING
    for span in spans:
        whole = add(whole, span)
    return whole


def less(whole: Counters, part: Counters) -> Counters:
    """What came on top of `part`, an earlier reading of the same counters."""
    shared = part.per_position + (0,) * (len(whole.per_position) - len(part.per_position))
    return Counters(
        drafts=whole.drafts - part.drafts,
        drafted=whole.drafted - part.drafted,
        accepted=whole.accepted - part.accepted,
        per_position=tuple(a - b for a, b in zip(whole.per_position, shared, strict=True)),
        predicted=whole.predicted - part.predicted,
        predicted_seconds=whole.predicted_seconds - part.predicted_seconds,
        tells_drafts=whole.tells_drafts,
    )


def _expected_accepts(survival: SurvivalModel, drafted: float, under: Speculation) -> float:
    """Accepted tokens expected of a draft whose mean length is `drafted`, all of it past p_min."""
    passing = survival.weight * (survival.p >= under.p_min)
    kept = np.maximum(passing.sum(axis=1), 1e-6)
    alive = np.cumprod((passing * survival.q).sum(axis=1) / kept)[: max(1, under.n_max)]
    lengths = np.clip(drafted - np.arange(len(alive)), 0.0, 1.0)
    return float(alive @ lengths)
