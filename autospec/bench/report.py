"""The report of a benchmark, as plain data: figures with intervals, costs, goals, raw rows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autospec import __version__
from autospec.bench.arms import Subject, average_cost_policy
from autospec.bench.goals import TUNED, goals
from autospec.bench.journal import Record
from autospec.bench.prediction import cost_errors
from autospec.bench.results import (
    acceptance,
    depth_of,
    diverged,
    ratio,
    ratio_of_all,
    rounds_of,
    speed,
    times,
    usable,
)
from autospec.bench.runner import Measured, Order
from autospec.bench.stats import median_error
from autospec.bench.suite import Cell
from autospec.daemon.choose import Model, predict

FORMAT = 1
AGAINST = ("plain", "default", "best_static")
AGAINST_OVERALL = (*AGAINST, "scalar")

Report = dict[str, Any]


@dataclass(frozen=True)
class Circumstances:
    """Where and how a benchmark ran. `hardware` as `snapshot().to_dict()`; `command` as typed."""

    command: str
    began: str
    hardware: Mapping[str, Any]
    calibration_cached: bool


def report_of(
    subject: Subject,
    order: Order,
    measured: Measured,
    rows: Sequence[Record],
    circumstances: Circumstances,
) -> Report:
    """The whole document. Rates in tokens/s, times in ms where they say so, else in seconds."""
    by_cell = {cell: [row for row in rows if row["cell"] == cell.key] for cell in order.cells}
    arms = {
        arm: {
            cell.key: _figures(of_cell, cell, arm)
            for cell, of_cell in by_cell.items()
            if speed(of_cell, cell, arm) is not None
        }
        for arm in order.arms
    }
    cost = _calibration_cost(subject, measured, circumstances)
    prediction = _prediction(subject, rows)
    document: Report = {
        "format": FORMAT,
        "version": __version__,
        "arms": arms,
        "cells": {
            cell.key: asdict(cell) | _about(of_cell, cell) for cell, of_cell in by_cell.items()
        },
        "overall": _overall(rows, order.arms),
        "failed": dict(measured.failed),
        "calibration_cost_vs_sweep": cost["seconds_ratio"],
        "calibration_cost": cost,
        "prediction_error": prediction["round_cost"]["headline"],
        "prediction": prediction,
        "regret": _regret(by_cell, order.arms),
        "acceptance_by_position": _by_position(rows),
        "operating_points": _operating_points(rows),
        "settings": _settings(rows, measured),
        "thresholds": _thresholds(subject),
        "curves": _curves(subject),
        "seconds": measured.seconds,
        "finished": measured.finished,
        "servers": "in turn" if measured.crowded else "side by side",
        "machine": _machine(circumstances.hardware),
        "engine": {
            "version": subject.prepared.engine.version,
            "identity": subject.prepared.engine.identity,
            "build_date": subject.prepared.engine.build_date,
        },
        "models": _models(subject),
        "suite": asdict(order.suite),
        "command": circumstances.command,
        "began": circumstances.began,
        "raw": list(rows),
    }
    document["goals"] = goals(document)
    return document


def _figures(rows: Sequence[Record], cell: Cell, arm: str) -> dict[str, Any]:
    found = speed(rows, cell, arm)
    assert found is not None
    (ms,) = times(rows, arm)
    differ, compared = diverged(rows, arm)
    figures: dict[str, Any] = {
        "tokens_per_second": found.value,
        "low": found.low,
        "high": found.high,
        "ms_per_token": 1000 / found.value,
        "spread_ms_per_token": _spread(ms),
        "rows": len(ms),
        "acceptance": acceptance(rows, arm),
        "diverged": differ,
        "compared": compared,
    }
    for against in AGAINST:
        paired = ratio(rows, cell, arm, against)
        figures[f"ratio_vs_{against}"] = paired.value if paired else None
        figures[f"interval_vs_{against}"] = [paired.low, paired.high] if paired else None
    return figures


def _overall(rows: Sequence[Record], arms: Sequence[str]) -> dict[str, Any]:
    """The ratios over the rows of all cells, of each arm but plain that answered any."""
    found: dict[str, Any] = {}
    for arm in arms:
        for against in AGAINST_OVERALL:
            if arm in ("plain", against):
                continue
            if (one := ratio_of_all(rows, arm, against)) is not None:
                found.setdefault(arm, {})[against] = asdict(one)
    return found


def _spread(ms: Sequence[float]) -> float | None:
    """Half the interquartile range."""
    if len(ms) < 2:
        return None
    low, _, high = statistics.quantiles(ms, n=4, method="inclusive")
    return (high - low) / 2


def _about(rows: Sequence[Record], cell: Cell) -> dict[str, Any]:
    return {
        "rows": len(rows),
        "disturbed": sum(row["disturbed"] is not None for row in rows),
        "rows_used": len(usable(rows)),
        "disturbances": sorted({row["disturbed"] for row in rows if row["disturbed"]}),
        "context_tokens": depth_of(rows, cell),
    }


def _calibration_cost(
    subject: Subject, measured: Measured, circumstances: Circumstances
) -> dict[str, Any]:
    calibration, swept = subject.calibration, measured.swept
    written = sum(one.accepted + 1 for one in calibration.rounds)
    cost: dict[str, Any] = {
        "calibration": {
            "seconds": calibration.seconds,
            "tokens": written,
            "cached": circumstances.calibration_cached,
            "unsure": calibration.unsure,
        },
        "sweep": swept.to_json() if swept else None,
        "seconds_ratio": None,
        "seconds_ratio_exhaustive": None,
    }
    if swept and swept.seconds:
        cost["seconds_ratio"] = calibration.seconds / swept.seconds
        cost["seconds_ratio_exhaustive"] = calibration.seconds / swept.exhaustive_seconds
    return cost


def _prediction(subject: Subject, rows: Sequence[Record]) -> dict[str, Any]:
    cost = cost_errors(rounds_of(rows, "live"), subject.calibration)
    rates: dict[str, Any] = {}
    pairs: list[tuple[float, float, str]] = []
    for arm in TUNED:
        told = [
            (sample["extra"]["predicted_rate"], 1000 / sample["ms"], row["cell"])
            for row in rows
            if (sample := row["samples"].get(arm))
            and sample["extra"].get("predicted_rate")
            and sample["ms"] > 0
        ]
        rates[arm] = median_error([p for p, _, _ in told], [m for _, m, _ in told])
        pairs += told
    return {
        "round_cost": cost,
        "rate": rates | {"samples": len(pairs)},
        "rate_pairs": [list(pair) for pair in pairs],
        "round_pairs": [
            [one["predicted_ms"], one["draft_ms"] + one["verify_ms"]]
            for one in rounds_of(rows, "live")
            if one["busy"] == 1 and one["predicted_ms"] is not None
        ],
    }


def _regret(by_cell: Mapping[Cell, Sequence[Record]], arms: Sequence[str]) -> dict[str, Any]:
    """What each tuned arm lost against the better of plain and the best triple, 0 to 1."""
    found: dict[str, Any] = {}
    for arm in [name for name in TUNED if name in arms]:
        of_arm = {}
        for cell, rows in by_cell.items():
            against = [ratio(rows, cell, arm, other) for other in ("plain", "best_static")]
            known = [one.value for one in against if one is not None]
            if known:
                of_arm[cell.key] = max(0.0, 1 - min(known))
        found[arm] = of_arm
    return found


def _by_position(rows: Sequence[Record]) -> list[dict[str, float]]:
    """Share of drafts that reached each position and were accepted up to there."""
    rounds = rounds_of(rows, "live")
    found = []
    for position in range(1, 1 + max((one["drafted"] for one in rounds), default=0)):
        reached = [one for one in rounds if one["drafted"] >= position]
        accepted = sum(one["accepted"] >= position for one in reached)
        found.append(
            {"position": position, "share": accepted / len(reached), "drafts": len(reached)}
        )
    return found


def _operating_points(rows: Sequence[Record]) -> list[dict[str, float]]:
    """How often each batch was verified, and what it took, by depth and load (live rounds)."""
    points: dict[tuple[int, int, int], list[float]] = {}
    for one in rounds_of(rows, "live"):
        key = (one["drafted"] + 1, one["busy"], one["depth"] // 256 * 256)
        points.setdefault(key, []).append(one["verify_ms"])
    return [
        {
            "batch": batch,
            "busy": busy,
            "depth": depth,
            "count": len(ms),
            "verify_ms": statistics.median(ms),
        }
        for (batch, busy, depth), ms in sorted(points.items())
    ]


def _settings(rows: Sequence[Record], measured: Measured) -> dict[str, Any]:
    """What each arm ran with, by cell: the last setting and how often it was restarted."""
    found: dict[str, Any] = {"best_static": {}}
    if measured.swept:
        found["best_static"] = {
            cell: list(triple) for cell, triple in measured.swept.winners.items()
        }
    for arm in TUNED:
        told = [
            (row["cell"], sample["extra"])
            for row in rows
            if (sample := row["samples"].get(arm)) and "setting" in sample["extra"]
        ]
        found[arm] = {cell: extra["setting"] for cell, extra in told}
    return found


def _thresholds(subject: Subject) -> dict[str, Any]:
    """The cumulative survival that ours and the old rule ask for at each position, before any
    traffic; None is "never"."""
    model = Model(subject.model, subject.prepared.context, subject.calibration, live=True)
    return {
        "autospec": predict(model).policy.to_json()["thresholds"],
        "pr17034": average_cost_policy(subject.calibration).thresholds.ravel().tolist(),
    }


def _curves(subject: Subject) -> list[dict[str, Any]]:
    """Step times of the target as they were measured."""
    return [asdict(step) for step in subject.calibration.target]


def _machine(hardware: Mapping[str, Any]) -> dict[str, Any]:
    """What decides on speed; no name of the host."""
    return {
        "cpu": hardware["cpu"],
        "memory": {"total": hardware["memory"]["total"], "limit": hardware["memory"]["limit"]},
        "gpus": [
            {key: gpu.get(key) for key in ("name", "memory_total", "power_limit", "driver")}
            for gpu in hardware["gpus"]
        ],
    }


def _models(subject: Subject) -> dict[str, Any]:
    launch = subject.prepared.launch
    return {
        "name": launch.name,
        "target": launch.model.name if launch.model else launch.hf,
        "draft": launch.draft.name if launch.draft else launch.draft_hf,
        "context": subject.prepared.context,
        "slots": launch.slots,
        "extra": list(launch.extra),
    }
