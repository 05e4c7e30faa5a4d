"""A report as one page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autospec.bench.report import AGAINST_OVERALL

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;
color:#1c2330;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e2e6ec;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
td.bar{width:30%;text-align:left}
.bar i{display:block;height:.8rem;background:#3b6fb6;border-radius:2px}
.bar i.ours{background:#2e8b57}
.dim{color:#6b7482}.missed{color:#b3261e}.met{color:#1e7b3a}
img{max-width:100%}code{background:#f2f4f7;padding:.1rem .3rem;border-radius:3px}
"""
_OURS = ("scalar", "live")
_METHOD = (
    "Medians of rows in which every arm answers the same request, in shuffled order, greedy and "
    "without a prompt cache; the mixture is compared by its whole time. Intervals are 95 % "
    "(bootstrap over rows). Speeds are of generated tokens."
)


def page(report: Mapping[str, Any], pictures: Sequence[tuple[str, bytes]] = ()) -> str:
    """The page; `pictures` are titles with PNGs, which it carries within itself."""
    title = f"Speculative decoding on {report['models']['target']}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _about(report),
        *(_cell(report, cell) for cell in report["cells"]),
        _overall(report),
        _goals(report),
        _costs(report),
        *(_picture(name, png) for name, png in pictures),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _about(report: Mapping[str, Any]) -> str:
    machine, models = report["machine"], report["models"]
    chips = [gpu["name"] for gpu in machine["gpus"]] or [machine["cpu"]["model"]]
    pair = f"Draft: {models['draft']}. Machine: {', '.join(map(str, chips))}."
    builds = f"llama.cpp {report['engine']['version']}. autospec {report['version']}."
    lines = [f"{pair} {builds}", _METHOD]
    if not report["finished"]:
        lines.append("The budget ended before every interval was narrow.")
    lines += [f"{arm} took no part: {why}" for arm, why in report["failed"].items()]
    told = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return told + f"<p><code>{escape(report['command'])}</code></p>"


def _cell(report: Mapping[str, Any], cell: str) -> str:
    about = report["cells"][cell]
    found = {arm: cells[cell] for arm, cells in report["arms"].items() if cell in cells}
    if not found:
        return ""
    fastest = max(figures["tokens_per_second"] for figures in found.values())
    rows = "".join(_row(arm, figures, fastest) for arm, figures in found.items())
    heads = (
        "",
        "",
        "tokens/s",
        "against plain",
        "default",
        "best static",
        "accepted",
        "other text",
    )
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    context = about["context_tokens"]
    said = f"{about['rows_used']} rows"
    if context is not None:
        said += f", {context:.0f} tokens of context"
    if about["disturbed"]:
        said += f", {about['disturbed']} rows disturbed: {'; '.join(about['disturbances'])}"
    return (
        f"<h2>{escape(cell)}</h2><table><tr>{head}</tr>{rows}</table>"
        f'<p class="dim">{escape(said)}</p>'
    )


def _row(arm: str, figures: Mapping[str, Any], fastest: float) -> str:
    width = 100 * figures["tokens_per_second"] / fastest
    kind = ' class="ours"' if arm in _OURS else ""
    accepted = figures["acceptance"]
    cells = [
        escape(arm),
        _with_interval(figures["tokens_per_second"], (figures["low"], figures["high"]), "{:.1f}"),
        *(
            _with_interval(figures[f"ratio_vs_{one}"], figures[f"interval_vs_{one}"], "{:.2f}")
            for one in ("plain", "default", "best_static")
        ),
        "" if accepted is None else f"{accepted:.0%}",
        "" if arm == "plain" else f"{figures['diverged']} of {figures['compared']}",
    ]
    bar = f'<td class="bar"><i{kind} style="width:{width:.1f}%"></i></td>'
    return f"<tr><td>{cells[0]}</td>{bar}" + "".join(f"<td>{c}</td>" for c in cells[1:]) + "</tr>"


def _with_interval(value: float | None, ends: Sequence[float | None] | None, form: str) -> str:
    if value is None:
        return ""
    shown = form.format(value)
    if ends is None or ends[0] is None or ends[1] is None or ends[0] == ends[1]:
        return shown
    low, high = form.format(ends[0]), form.format(ends[1])
    return f'{shown} <span class="dim">{low}–{high}</span>'


def _overall(report: Mapping[str, Any]) -> str:
    heads = ("", *(name.replace("_", " ") for name in AGAINST_OVERALL))
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    rows = ""
    for arm, found in report["overall"].items():
        shown = "".join(f"<td>{_with_ends(found.get(other))}</td>" for other in AGAINST_OVERALL)
        rows += f"<tr><td>{escape(arm)}</td>{shown}</tr>"
    return f"<h2>All rows: geometric mean of the ratios</h2><table><tr>{head}</tr>{rows}</table>"


def _with_ends(one: Mapping[str, Any] | None) -> str:
    return "" if one is None else _with_interval(one["value"], (one["low"], one["high"]), "{:.2f}")


def _goals(report: Mapping[str, Any]) -> str:
    rows = ""
    for goal in report["goals"]:
        state = {True: "met", False: "missed", None: "unknown"}[goal["met"]]
        value = "" if goal["value"] is None else f"{goal['value']:.3f}"
        sign = "at most" if goal["at_most"] else "at least"
        rows += (
            f"<tr><td>{escape(goal['goal'])}</td><td>{value}</td>"
            f'<td>{sign} {goal["bound"]:.3g}</td><td class="{state}">{state}</td></tr>'
        )
    return f"<h2>Goals</h2><table>{rows}</table>"


def _costs(report: Mapping[str, Any]) -> str:
    cost, error = report["calibration_cost"], report["prediction_error"]
    lines = [f"The calibration took {cost['calibration']['seconds']:.0f} s."]
    if (sweep := cost["sweep"]) is not None:
        lines.append(
            f"The race for the best triple took {sweep['seconds']:.0f} s and wrote "
            f"{sweep['tokens']} tokens; every triple would have taken about "
            f"{sweep['exhaustive_seconds'] / 3600:.1f} h."
        )
    if error is not None:
        lines.append(f"The cost of a round was predicted with a median error of {error:.1%}.")
    return "<h2>Costs</h2>" + "".join(f"<p>{escape(line)}</p>" for line in lines)


def _picture(name: str, png: bytes) -> str:
    data = b64encode(png).decode("ascii")
    alt = escape(name, quote=True)
    return f'<h2>{escape(name)}</h2><img alt="{alt}" src="data:image/png;base64,{data}">'
