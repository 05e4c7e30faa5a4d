"""A benchmark's report as tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autospec.bench.report import AGAINST_OVERALL


def print_report(report: dict[str, Any]) -> None:
    console = Console()
    for cell, about in report["cells"].items():
        console.print(_cell_table(report, cell, about))
    console.print(_overall_table(report))
    for arm, reason in report["failed"].items():
        console.print(Text(f"{arm} took no part: {reason}", style="yellow"))
    console.print(_cost_line(report))
    console.print(_prediction_line(report))
    console.print(_goal_table(report))
    if not report["finished"]:
        console.print(Text("the budget ended before every interval was narrow", style="yellow"))


def _cell_table(report: dict[str, Any], cell: str, about: dict[str, Any]) -> Table:
    context = about["context_tokens"]
    title = f"{cell}: {about['rows_used']} rows"
    if context is not None:
        title += f", {context:.0f} tokens of context"
    if about["disturbed"]:
        title += f", {about['disturbed']} disturbed"
    table = Table(title=title, title_justify="left", box=None, header_style="cyan", pad_edge=False)
    table.add_column("")
    for heading in ("tokens/s", "ms a token", "accepted", "plain", "default", "best static"):
        table.add_column(heading, justify="right")
    table.add_column("other text", justify="right")
    for arm, cells in report["arms"].items():
        if (found := cells.get(cell)) is not None:
            table.add_row(
                arm,
                _with_interval(found["tokens_per_second"], found["low"], found["high"], "{:.1f}"),
                f"{found['ms_per_token']:.1f}",
                "" if found["acceptance"] is None else f"{found['acceptance']:.0%}",
                *(_ratio(found, against) for against in ("plain", "default", "best_static")),
                f"{found['diverged']}/{found['compared']}" if arm != "plain" else "",
            )
    return table


def _overall_table(report: dict[str, Any]) -> Table:
    title = "all rows: geometric mean of the ratios"
    table = Table(title=title, title_justify="left", box=None, header_style="cyan", pad_edge=False)
    table.add_column("")
    for against in AGAINST_OVERALL:
        table.add_column(against.replace("_", " "), justify="right")
    for arm, found in report["overall"].items():
        table.add_row(arm, *(_of_all(found.get(against)) for against in AGAINST_OVERALL))
    return table


def _of_all(one: dict[str, Any] | None) -> str:
    return "" if one is None else _with_interval(one["value"], one["low"], one["high"], "{:.2f}")


def _ratio(found: dict[str, Any], against: str) -> str:
    value = found[f"ratio_vs_{against}"]
    if value is None:
        return ""
    low, high = found[f"interval_vs_{against}"]
    return _with_interval(value, low, high, "{:.2f}") if low != high else f"{value:.2f}"


def _with_interval(value: float, low: float | None, high: float | None, form: str) -> str:
    shown = form.format(value)
    if low is None or high is None:
        return shown
    return f"{shown} ({form.format(low)}–{form.format(high)})"


def _cost_line(report: dict[str, Any]) -> str:
    cost = report["calibration_cost"]
    line = f"calibration: {cost['calibration']['seconds']:.0f} s"
    if (sweep := cost["sweep"]) is not None:
        line += (
            f"; sweep for the best triple: {sweep['seconds']:.0f} s and {sweep['tokens']} tokens "
            f"for {sweep['triples']} triples raced"
            f"{'' if sweep['complete'] else ' (ended by its budget)'}, about "
            f"{sweep['exhaustive_seconds'] / 3600:.1f} h for every triple"
        )
    return line


def _prediction_line(report: dict[str, Any]) -> str:
    cost, rate = report["prediction"]["round_cost"], report["prediction"]["rate"]
    parts = []
    if cost["headline"] is not None:
        parts.append(f"a round's cost {cost['headline']:.1%} ({cost['rounds']} rounds)")
    parts += [
        f"{arm}'s rate {rate[arm]:.1%}" for arm in ("scalar", "live") if rate.get(arm) is not None
    ]
    return "median prediction error: " + (", ".join(parts) or "nothing was predicted")


def _goal_table(report: dict[str, Any]) -> Table:
    table = Table(title="goals", title_justify="left", box=None, pad_edge=False)
    for heading in ("", "", "figure", "bound"):
        table.add_column(heading)
    for goal in report["goals"]:
        sign = "≤" if goal["at_most"] else "≥"
        state = {True: "met", False: "missed", None: "unknown"}[goal["met"]]
        figure = "" if goal["value"] is None else f"{goal['value']:.3f}"
        style = {True: "green", False: "red", None: "dim"}[goal["met"]]
        table.add_row(Text(state, style=style), goal["goal"], figure, f"{sign} {goal['bound']:.3g}")
    return table
