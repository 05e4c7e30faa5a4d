"""How well a round's cost was predicted, and how a model that learns from rounds would have done.

Both are judged on rounds that had not been seen when the prediction was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autospec.bench.stats import median_error
from autospec.calibration.result import Calibration
from autospec.tuning.cost import fit_overhead, round_cost
from autospec.tuning.observations import Round

LEARNED = 200
"""Rounds after which the prediction is held to its promise."""

_REFIT = 50


def cost_errors(rounds: Sequence[dict[str, Any]], calibration: Calibration) -> dict[str, Any]:
    """Median relative errors of the predicted time of a round, over rounds of one busy slot.

    `in_force` is what the tuner reckoned with when the round was played; `learned` what the same
    model says with overheads fitted to all live rounds before. Each over the first `LEARNED`
    rounds and over those after them; `headline` is the latter of what was in force, where there
    are such rounds.
    """
    alone = [one for one in rounds if one["busy"] == 1 and one["predicted_ms"] is not None]
    measured = [one["draft_ms"] + one["verify_ms"] for one in alone]
    learned = _learned(alone, calibration)
    told = [one["predicted_ms"] for one in alone]
    in_force = _halves(told, measured)
    late = in_force[f"after_{LEARNED}"]
    return {
        "headline": in_force["all"] if late is None else late,
        "rounds": len(alone),
        "in_force": in_force,
        "learned": _halves(learned, measured),
    }


def _halves(predicted: Sequence[float], measured: Sequence[float]) -> dict[str, float | None]:
    return {
        "all": median_error(predicted, measured),
        f"first_{LEARNED}": median_error(predicted[:LEARNED], measured[:LEARNED]),
        f"after_{LEARNED}": median_error(predicted[LEARNED:], measured[LEARNED:]),
    }


def _learned(rounds: Sequence[dict[str, Any]], calibration: Calibration) -> list[float]:
    """Predicted ms of each round by overheads learned from the rounds before it."""
    if not rounds:
        return []
    target, draft = calibration.surface, calibration.draft_cost("autoregressive")
    longest = max(max(one["drafted"], one["paid"]) for one in rounds)
    seen: list[Round] = list(calibration.rounds)
    seen_depth = calibration.rehearsal_depth
    predicted = []
    for start in range(0, len(rounds), _REFIT):
        block = rounds[start : start + _REFIT]
        overhead = fit_overhead(seen, target, draft, seen_depth)
        for one in block:
            cost = round_cost(target, draft, n_max=longest, depth=one["depth"], overhead=overhead)
            predicted.append(float(cost.draft_ms[one["paid"]] + cost.verify_ms[one["drafted"]]))
        if start == 0:
            seen = []
        seen += [_round(one) for one in block]
        seen_depth = sum(one["depth"] for one in rounds[: start + len(block)]) / (
            start + len(block)
        )
    return predicted


def _round(one: dict[str, Any]) -> Round:
    return Round(
        p=(1.0,) * one["drafted"],
        accepted=one["accepted"],
        draft_ms=one["draft_ms"],
        verify_ms=one["verify_ms"],
    )
