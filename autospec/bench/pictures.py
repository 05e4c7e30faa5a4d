"""A report as pictures (matplotlib, from the extra `bench`)."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autospec.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Report = Mapping[str, Any]

_COLOURS = {
    "plain": "#9aa3ae",
    "default": "#c9a227",
    "best_static": "#3b6fb6",
    "pr17034": "#8d5fa8",
    "scalar": "#7cb88f",
    "live": "#2e8b57",
}


def available() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def demand() -> None:
    """UsageError without matplotlib."""
    if not available():
        raise UsageError(
            "pictures need matplotlib", hint="install it: pip install 'autospec[bench]'"
        )


def draw(report: Report) -> list[tuple[str, bytes]]:
    """Titles and PNGs of everything the report has figures for. UsageError without matplotlib."""
    demand()
    from matplotlib.figure import Figure  # noqa: PLC0415

    drawn = []
    for title, has_data, paint in _PICTURES:
        if not has_data(report):
            continue
        figure = Figure(figsize=(9, 4.5), layout="constrained")
        axes = figure.subplots()
        paint(report, axes)
        axes.set_title(title)
        axes.spines[["top", "right"]].set_visible(False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130)
        drawn.append((title, buffer.getvalue()))
    return drawn


def _speeds(report: Report, axes: Axes) -> None:
    cells = list(report["cells"])
    arms = [arm for arm, found in report["arms"].items() if found]
    width = 0.85 / len(arms)
    for number, arm in enumerate(arms):
        found = report["arms"][arm]
        here = [(i, found[cell]) for i, cell in enumerate(cells) if cell in found]
        middle = [one["tokens_per_second"] for _, one in here]
        low = [
            m if one["low"] is None else one["low"]
            for m, (_, one) in zip(middle, here, strict=True)
        ]
        high = [
            m if one["high"] is None else one["high"]
            for m, (_, one) in zip(middle, here, strict=True)
        ]
        error = np.array([np.subtract(middle, low), np.subtract(high, middle)])
        places = [i + (number - (len(arms) - 1) / 2) * width for i, _ in here]
        axes.bar(
            places,
            middle,
            width,
            yerr=error,
            label=arm,
            color=_COLOURS.get(arm),
            capsize=2,
            ecolor="#444c56",
        )
    axes.set_xticks(range(len(cells)), cells, rotation=20, ha="right")
    axes.set_ylabel("tokens/s")
    axes.legend(ncols=3, frameon=False)


def _costs(report: Report, axes: Axes) -> None:
    """Measured step times by depth and load, and where the live arm worked."""
    series: dict[tuple[int, int], list[tuple[int, float, float]]] = {}
    for step in report["curves"]:
        key = (step["depth"], step["slots"])
        total = step["batch"] * step["slots"]
        series.setdefault(key, []).append((total, step["ms"], step["spread_ms"]))
    for (depth, slots), points in sorted(series.items()):
        batch, ms, spread = zip(*sorted(points), strict=True)
        load = f", {slots} slots" if slots > 1 else ""
        axes.errorbar(batch, ms, yerr=spread, marker=".", label=f"depth {depth}{load}")
    points = report["operating_points"]
    if points:
        most = max(point["count"] for point in points)
        axes.scatter(
            [point["batch"] * point["busy"] for point in points],
            [point["verify_ms"] for point in points],
            s=[10 + 200 * point["count"] / most for point in points],
            facecolors="none",
            edgecolors="#2e8b57",
            label="live rounds (size: how often)",
        )
    axes.set_xlabel("tokens in the batch")
    axes.set_ylabel("ms a step; live rounds: verification")
    axes.legend(frameon=False)


def _thresholds(report: Report, axes: Axes) -> None:
    for arm, label in (("autospec", "autospec, before traffic"), ("pr17034", "pull request 17034")):
        values = report["thresholds"][arm]
        known = [(i, value) for i, value in enumerate(values, start=1) if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), marker="o", label=label)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("survival under which the draft ends")
    axes.legend(frameon=False)


def _acceptance(report: Report, axes: Axes) -> None:
    found = report["acceptance_by_position"]
    axes.bar([one["position"] for one in found], [one["share"] for one in found], color="#2e8b57")
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, of the drafts that reach it")


def _predictions(report: Report, axes: Axes) -> None:
    pairs = report["prediction"]["round_pairs"]
    predicted, measured = zip(*pairs, strict=True)
    axes.scatter(predicted, measured, s=6, alpha=0.4, color="#3b6fb6")
    most = max(*predicted, *measured)
    axes.plot([0, most], [0, most], color="#9aa3ae", linewidth=1)
    axes.set_xlabel("predicted ms of a round")
    axes.set_ylabel("measured ms")


_PICTURES: tuple[tuple[str, Callable[[Any], bool], Callable[[Any, Any], None]], ...] = (
    ("Speed by arm and workload", lambda report: any(report["arms"].values()), _speeds),
    ("Cost of a batch, and where rounds were", lambda report: bool(report["curves"]), _costs),
    ("Thresholds", lambda _report: True, _thresholds),
    (
        "Acceptance by position",
        lambda report: bool(report["acceptance_by_position"]),
        _acceptance,
    ),
    (
        "Predicted and measured rounds",
        lambda report: bool(report["prediction"]["round_pairs"]),
        _predictions,
    ),
)
