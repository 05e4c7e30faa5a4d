"""What the figures of a benchmark must bear, each claim with its figure and whether it is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TUNED = ("scalar", "live")
"""The arms that autospec steers."""

AT_LEAST_PLAIN = 0.98
AT_LEAST_STATIC = 0.98
BEYOND_STATIC = 1.10
CALIBRATION_SHARE = 1 / 20
COST_ERROR = 0.10


def goals(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every claim about the report `document`. `met` is None where nothing was measured.

    Against plain decoding it is the low end of the interval that counts.
    """
    found = []
    for arm in [name for name in TUNED if name in document["arms"]]:
        for cell, figures in document["arms"][arm].items():
            low = (figures["interval_vs_plain"] or [None])[0]
            found.append(_goal(f"{arm}, {cell}: not slower than plain", low, AT_LEAST_PLAIN))
            found.append(
                _goal(
                    f"{arm}, {cell}: not slower than the engine's default",
                    figures["ratio_vs_default"],
                    AT_LEAST_PLAIN,
                )
            )
            best = BEYOND_STATIC if document["cells"][cell]["workload"] == "mixture" else None
            found.append(
                _goal(
                    f"{arm}, {cell}: against the best static triple",
                    figures["ratio_vs_best_static"],
                    best or AT_LEAST_STATIC,
                )
            )
    share = document["calibration_cost_vs_sweep"]
    found.append(_goal("calibration against the sweep", share, CALIBRATION_SHARE, most=True))
    error = document["prediction"]["round_cost"]["in_force"]["after_200"]
    found.append(_goal("error of a round's cost after 200 rounds", error, COST_ERROR, most=True))
    return found


def _goal(what: str, value: float | None, bound: float, *, most: bool = False) -> dict[str, Any]:
    met = None if value is None else (value <= bound if most else value >= bound)
    return {"goal": what, "value": value, "bound": bound, "at_most": most, "met": met}
