"""How well a round's cost was predicted, and how a model that learns from rounds would have done.

Both are judged on rounds that had not been seen when the prediction was made.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from autospec.calibration.result import Calibration
from autospec.tuning.cost import fit_overhead
from autospec.tuning.livecost import LiveCost, TimedStep

LEARNED = 200
"""Rounds after which the prediction is held to its promise."""

_BLOCK = 8
"""Rounds that are predicted before they are learned from."""


def cost_errors(rounds: Sequence[dict[str, Any]], calibration: Calibration) -> dict[str, Any]:
    """Median relative errors of the predicted time of a round, over rounds of one busy slot.

    `in_force` is what the tuner reckoned with when the round was played; `learned` what the same
    model says when all live rounds before correct it. Each over the first `LEARNED`
    rounds and over those after them; `headline` is the latter of what was in force, where there
    are such rounds.
    """
    alone = [
        one for one in rounds if one["busy"] == 1 and one["predicted_ms"] and one["verify_ms"] > 0
    ]
    measured = [one["draft_ms"] + one["verify_ms"] for one in alone]
    told = [one["predicted_ms"] for one in alone]
    in_force = _halves([abs(p / m - 1) for p, m in zip(told, measured, strict=True)])
    late = in_force[f"after_{LEARNED}"]
    return {
        "headline": in_force["all"] if late is None else late,
        "rounds": len(alone),
        "in_force": in_force,
        "learned": _halves(_learned(alone, calibration)),
    }


def _halves(errors: Sequence[float]) -> dict[str, float | None]:
    return {
        "all": _median(errors),
        f"first_{LEARNED}": _median(errors[:LEARNED]),
        f"after_{LEARNED}": _median(errors[LEARNED:]),
    }


def _median(errors: Sequence[float]) -> float | None:
    return statistics.median(errors) if errors else None


def _learned(rounds: Sequence[dict[str, Any]], calibration: Calibration) -> list[float]:
    """|predicted − measured| / measured of each round, corrected by the rounds before it."""
    target, draft = calibration.surface, calibration.draft_cost("autoregressive")
    overhead = fit_overhead(calibration.rounds, target, draft, calibration.rehearsal_depth)
    cost = LiveCost(target, draft, overhead)
    errors: list[float] = []
    for start in range(0, len(rounds), _BLOCK):
        steps = [_step(one) for one in rounds[start : start + _BLOCK]]
        cost = cost.observe(steps)
        errors += cost.errors[-len(steps) :]
    return errors


def _step(one: dict[str, Any]) -> TimedStep:
    return TimedStep(
        slots=1,
        depth=one["depth"],
        drafted=one["drafted"],
        verify_ms=one["verify_ms"],
        steps=one["paid"],
        draft_ms=one["draft_ms"],
    )
