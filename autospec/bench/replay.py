"""Recorded rounds on recorded cost curves: what autospec would choose there, and gain.

A curve tells what a machine pays for a batch, rounds tell what one pair of models guesses on one
kind of text; put together they say what would happen on machines that are not at hand. Several
files of rounds are also played as one mixture: one triple must then do for all of them, while
the thresholds follow the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autospec.bench.workloads import MIXTURE
from autospec.calibration.curves import Curve, read_rounds
from autospec.calibration.donation import Donation, read_donation
from autospec.errors import UsageError
from autospec.tuning.cost import (
    CostSurface,
    DraftCost,
    RoundCost,
    fit_overhead,
    round_cost,
    simple_cost,
)
from autospec.tuning.lab import Comparison, compare, fit_vector
from autospec.tuning.observations import Round
from autospec.tuning.plan import make_plan
from autospec.tuning.replay import Trace, cut_scalar, every_triple, rate

DRAFT_COST = 0.05
"""Time of a draft step in units of plain decoding, where a curve does not come with its draft's."""


@dataclass(frozen=True)
class Played:
    """One text on one curve. Speedups are over plain decoding on the same curve; `chosen` is
    what autospec's gate makes of it: the vector's, or 1 where it leaves speculation off, and
    `predicted` what it expects then."""

    curve: str
    text: str
    found: Comparison
    speculate: bool
    predicted: float

    @property
    def chosen(self) -> float:
        return self.found.vector / self.found.plain if self.speculate else 1.0

    def to_json(self) -> dict[str, Any]:
        plain = self.found.plain
        names = ("best_fixed", "best_scalar", "pr17034", "vector", "oracle")
        return {
            "curve": self.curve,
            "text": self.text,
            "speculate": self.speculate,
            "predicted": self.predicted,
            "chosen": self.chosen,
            "speedup": {name: getattr(self.found, name) / plain for name in names},
            "settings": self.found.to_json()["settings"],
            "rounds": self.found.rounds,
        }


@dataclass(frozen=True)
class Mixed:
    """All texts on one curve, each as long as the others in tokens, over plain decoding."""

    curve: str
    chosen: float
    best_scalar: float

    def to_json(self) -> dict[str, Any]:
        return {"curve": self.curve, "text": MIXTURE, "chosen": self.chosen} | {
            "speedup": {"best_scalar": self.best_scalar},
            "ratio_vs_best_static": self.chosen / self.best_scalar,
        }


def replay_files(
    curves: Path, rounds: Sequence[Path], *, draft_cost: float = DRAFT_COST
) -> tuple[list[Played], list[Mixed]]:
    """Every file of rounds on every curve of the file `curves`.

    Without `rounds` those that came with the curves are played. UsageError for files that are
    unusable, or do not go together.
    """
    donated = read_donation(curves)
    texts = {path.stem: read_rounds(path) for path in rounds}
    if not texts and donated.rounds:
        texts = {"rehearsal": list(donated.rounds)}
    if not texts:
        raise UsageError(
            f"{curves} holds no rounds",
            hint="give recorded rounds with --rounds FILE, a JSON object a line: p, accepted",
        )
    try:
        costs = _costs(donated, draft_cost)
        played = [
            _play(name, curve, text, cost, some)
            for name, (curve, cost) in costs.items()
            for text, some in texts.items()
        ]
        mixed = [
            _mix(name, cost, texts, [one for one in played if one.curve == name])
            for name, (_, cost) in costs.items()
            if len(texts) > 1
        ]
    except ValueError as error:
        raise UsageError(f"{curves} and its rounds do not go together: {error}") from None
    return played, mixed


def shortened(rounds: Sequence[Round], n_max: int) -> list[Round]:
    """The rounds as an engine with this `n_max` would have drafted them, without their times."""
    return [Round(one.p[:n_max], min(one.accepted, n_max)) for one in rounds]


def curve_cost(curve: Curve, draft_cost: float) -> RoundCost:
    """Costs of rounds in units of plain decoding (called ms): each draft step costs
    `draft_cost`, and so does the draft's own evaluation of a verified batch."""
    batch = [cost * size for size, cost in enumerate(curve.relative_cost, start=1)]
    return simple_cost([one + draft_cost for one in batch], draft_cost, plain_ms=batch[0])


def _costs(donated: Donation, draft_cost: float) -> dict[str, tuple[Curve, RoundCost]]:
    if not (donated.target and donated.draft):
        return {curve.name: (curve, curve_cost(curve, draft_cost)) for curve in donated.curves}
    curve = donated.curves[0]
    target = CostSurface.from_steps(donated.target)
    draft = DraftCost("autoregressive", CostSurface.from_steps(donated.draft))
    overhead = fit_overhead(donated.rounds, target, draft, donated.rehearsal_depth)
    n_max = len(curve.relative_cost) - 1
    return {curve.name: (curve, round_cost(target, draft, n_max=n_max, overhead=overhead))}


def _play(name: str, curve: Curve, text: str, cost: RoundCost, rounds: Sequence[Round]) -> Played:
    short = shortened(rounds, cost.n_max)
    fitting = cost.truncated(max(one.drafted for one in short))
    plan = make_plan(fitting, fit_vector(fitting, short)[0], thresholds=True)
    found = compare(fitting, short, np.array(curve.relative_cost[: fitting.n_max + 1]))
    return Played(name, text, found, plan.speculate, plan.rate / plan.plain_rate)


def _mix(
    name: str, cost: RoundCost, texts: Mapping[str, Sequence[Round]], played: Sequence[Played]
) -> Mixed:
    """One triple for all texts in hindsight, against what was chosen for each."""
    longest = max(one.drafted for rounds in texts.values() for one in rounds)
    fitting = cost.truncated(min(cost.n_max, longest))
    traces = [Trace.of(shortened(rounds, fitting.n_max)) for rounds in texts.values()]
    times = [
        sum(1 / rate(fitting, trace, cut_scalar(trace, triple)) for trace in traces)
        for triple in every_triple(fitting.n_max)
    ]
    best = len(traces) / min(times) / fitting.plain_rate
    chosen = len(played) / sum(1 / one.chosen for one in played)
    return Mixed(name, chosen, best)
