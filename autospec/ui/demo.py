"""The demo's result: a table for people, a document for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autospec.bench.asking import ArmResult
from autospec.bench.stats import Interval
from autospec.demo.run import Outcome
from autospec.ui.calibration import draw_curve

_ARMS = {
    "plain": "plain decoding",
    "default": "engine's default",
    "tuned": "autospec",
}


def print_outcome(outcome: Outcome) -> None:
    console = Console()
    draw_curve(console, outcome.calibration, outcome.setting)
    plan = outcome.setting.plan
    if plan is not None:
        values = plan.policy.to_json()["thresholds"]
        kept = " ".join("never" if value is None else f"{value:.2f}" for value in values)
        console.print(Text(f"survival needed at each position: {kept}", style="dim"))
    console.print(Text(f"setting: {outcome.setting.reason}"))
    table = Table(box=None, header_style="cyan", pad_edge=False)
    for heading in ("", "tokens/s", "±", "accepted", "against plain"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, result in outcome.results.items():
        table.add_row(
            _ARMS[name],
            f"{result.tokens_per_second:.1f}",
            f"{result.spread:.1f}",
            "" if result.acceptance is None else f"{result.acceptance:.0%}",
            f"{result.tokens_per_second / outcome.results['plain'].tokens_per_second:.2f}x",
        )
    console.print(table)
    console.print(f"autospec against plain decoding:   {_ratio(outcome.vs_plain)}")
    console.print(f"autospec against engine's default: {_ratio(outcome.vs_default)}")
    answers = "every answer is the same as plain's"
    if outcome.diverged:
        answers = f"{outcome.diverged} answers differ from plain's: the engine rounds by batch size"
    console.print(
        Text(
            f"medians of {outcome.compared} paired ratios with 95 % intervals; "
            f"{answers}; {outcome.seconds:.0f} s in all",
            style="dim",
        )
    )


def _ratio(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}x"
    return f"{ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The document of `autospec demo --json`; rates in tokens/s, times in ms."""
    speculation, plan = outcome.setting.speculation, outcome.setting.plan
    plain = outcome.results["plain"].tokens_per_second
    default = outcome.results["default"].tokens_per_second
    return {
        "cost_curve": [
            {"batch": step.batch, "ms": step.ms, "spread_ms": step.spread_ms}
            for step in outcome.calibration.target
            if step.depth == 0 and step.slots == 1
        ],
        "thresholds": plan.policy.to_json()["thresholds"] if plan else [],
        "scalar": {
            "type": ",".join(speculation.types) or "off",
            "n_max": speculation.n_max,
            "n_min": speculation.n_min,
            "p_min": speculation.p_min,
        },
        "predicted": {
            "plain": plan.plain_rate if plan else None,
            "tuned": plan.rate if plan else None,
        },
        "results": {
            name: _result(result, plain, default) for name, result in outcome.results.items()
        },
        "ratio_vs_plain": outcome.vs_plain.value,
        "ratio_vs_default": outcome.vs_default.value,
        "intervals": {
            "ratio_vs_plain": [outcome.vs_plain.low, outcome.vs_plain.high],
            "ratio_vs_default": [outcome.vs_default.low, outcome.vs_default.high],
        },
        "why": outcome.setting.reason,
        "before_traffic": outcome.first.reason,
        "decision": asdict(outcome.decision) if outcome.decision else None,
        "calibration": {
            "seconds": outcome.calibration.seconds,
            "cached": outcome.cached,
            "unsure": outcome.calibration.unsure,
            "skipped": list(outcome.calibration.skipped),
            "remarks": list(outcome.calibration.remarks),
        },
        "compared": outcome.compared,
        "diverged": outcome.diverged,
        "seconds": outcome.seconds,
    }


def _result(result: ArmResult, plain: float, default: float) -> dict[str, Any]:
    return {
        "tokens_per_second": result.tokens_per_second,
        "spread": result.spread,
        "acceptance": result.acceptance,
        "ratio_vs_plain": result.tokens_per_second / plain,
        "ratio_vs_default": result.tokens_per_second / default,
    }
