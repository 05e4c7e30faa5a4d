"""`autospec explain` as a person reads it."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from autospec.ui.status import duration, without_pins

Json = dict[str, Any]

_HOW = {"in force": "in force", "live": "without a restart", "restart": "by a restart"}


def print_explanation(document: Json) -> None:
    Console().print(explanation(document))


def explanation(document: Json) -> RenderableType:
    parts: list[RenderableType] = []
    if not document["running"]:
        parts.append(
            Text("No daemon runs: this follows from what was measured and learned before.\n")
        )
    for model in document["models"]:
        parts += [_model(model), Text()]
    return Group(*parts)


def _model(model: Json) -> RenderableType:
    parts: list[RenderableType] = [Text(model["model"], style="bold"), _facts(model)]
    if not model["weighed"]:
        return Group(*parts, Text(f"Nothing is weighed: {model['why_not']}."))
    parts += [Text("\nWhat could be in force"), _options(model)]
    if trials := model["trials"]:
        parts += [Text("\nMeasured slower than plain decoding"), *map(_trial, trials)]
    parts += [Text(f"\n{_where(model['curve'])}"), _curve(model["curve"])]
    if decisions := model["decisions"]:
        parts += [Text("\nThe last decisions, newest first"), *map(_decision, decisions)]
    return Group(*parts)


def _facts(model: Json) -> RenderableType:
    setting, applier = model["setting"], model["applier"]
    table = _pairs()
    numbers = f"n_max {setting['n_max']}, n_min {setting['n_min']}, p_min {setting['p_min']:g}"
    shown = setting["type"] if setting["type"] == "off" else f"{setting['type']}, {numbers}"
    if setting["live"]:
        shown = f"{setting['type']}, thresholds inside the engine, up to {setting['n_max']} tokens"
    table.add_row("setting", shown)
    table.add_row("why", setting["why"])
    if words := without_pins(setting):
        table.add_row("without pins", words)
    table.add_row("applier", f"{applier['name']}: {applier['why']}")
    if applier["loss"]:
        table.add_row(
            "", f"costs {applier['loss']:.1%} against thresholds in the engine, predicted"
        )
    if model["not_live"]:
        table.add_row("not live", Text(model["not_live"], style="yellow"))
    if not model["weighed"]:
        return table
    table.add_row("traffic", _traffic(model["present"]))
    table.add_row("measured", _measured(model["measured"]))
    table.add_row("learned", _learned(model["learned"]))
    if (explored := model["explored"]) and explored["explored"]:
        share = explored["explored"] / max(1, explored["rounds"])
        said = f"{explored['explored']} of {explored['rounds']} rounds ({share:.2%}), to learn"
        table.add_row("explored", said)
    return table


def _traffic(present: Json) -> str:
    if not present["seen"]:
        one = present["mixture"][0]
        return f"none seen yet; {one['busy']} busy slots at depth {one['depth']:.0f} are taken"
    shares = [
        f"{one['share']:.0%} with {one['busy']} busy at depth {one['depth']:.0f}"
        for one in present["mixture"]
    ]
    return f"at work {present['working']:.0%} of the time: {', '.join(shares)}"


def _measured(measured: Json) -> str:
    if measured["over_plain"] is None:
        return "nothing yet under this setting"
    words = f"{measured['rounds']} rounds: {measured['over_plain']:.2f}x of plain decoding"
    if measured["over_plain_spread"] is not None:
        words += f" (± {measured['over_plain_spread']:.2f})"
    if measured["over_predicted"] is not None:
        words += f", {measured['over_predicted']:.2f}x of what was predicted"
    return words


def _learned(learned: Json) -> str:
    words = f"acceptance from {learned['rounds']:.0f} rounds"
    if learned["steps"]:
        words += f", costs from {learned['steps']} live steps"
    if (error := learned["prediction_error"]) is not None:
        words += f" (a step's time is predicted to {error:.1%})"
    if learned["plain"] != 1.0:
        words += f"; plain decoding takes {learned['plain']:.2f}x of what was calibrated"
    return words


def _options(model: Json) -> RenderableType:
    table = Table(box=None, padding=(0, 2), show_header=True, header_style="dim")
    table.add_column("setting", overflow="fold")
    table.add_column("tokens/s", justify="right")
    table.add_column("worse to better", justify="right")
    table.add_column("comes")
    for option in sorted(model["options"], key=lambda one: -one["rate"]):
        how = "measured" if option["measured"] else "predicted"
        table.add_row(
            Text(option["name"], style="bold" if option["how"] == "in force" else ""),
            f"{option['rate']:.1f} {how}",
            f"{option['worse']:.1f} to {option['better']:.1f}",
            _HOW.get(option["how"], option["how"]),
        )
    return table


def _trial(trial: Json) -> RenderableType:
    return Text(
        f"  {trial['option']}: {trial['over_plain']:.2f}x of plain decoding at {trial['where']}; "
        "tried again when costs or acceptance have changed"
    )


def _where(curve: Json) -> str:
    slots = "1 busy slot" if curve["busy"] == 1 else f"{curve['busy']} busy slots"
    words = f"A round at depth {curve['depth']:.0f} with {slots}; plain decoding takes"
    words += f" {curve['plain_ms']:.1f} ms, and drafting {curve['mean_drafted']:.1f} tokens on"
    words += " average is best"
    return words + (" (partly beyond what was measured)" if curve["extrapolated"] else "")


def _curve(curve: Json) -> RenderableType:
    table = Table(box=None, padding=(0, 2), show_header=True, header_style="dim")
    for name in ("drafted", "drafting ms", "the rest ms", "round ms", "±", "accepted", "needed"):
        table.add_column(name, justify="right")
    for row in curve["rows"]:
        needed = "never" if row["threshold"] is None else f"{row['threshold']:.2f}"
        table.add_row(
            str(row["drafted"]),
            f"{row['draft_ms']:.1f}",
            f"{row['verify_ms']:.1f}",
            f"{row['round_ms']:.1f}",
            f"{row['spread_ms']:.1f}",
            f"{row['survival']:.2f}" if row["drafted"] else "",
            needed if row["drafted"] else "",
        )
    legend = Text(
        "accepted: the chance that all tokens up to here are; needed: the chance under which a "
        "draft ends before this token",
        style="dim",
    )
    return Group(table, legend)


def _decision(decision: Json) -> RenderableType:
    ago = duration(time.time() - decision["at"])
    return Text.assemble(
        (f"  {ago} ago  ", "dim"), (decision["action"], "bold"), ": ", decision["reason"]
    )


def _pairs() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True, max_width=16)
    table.add_column(overflow="fold")
    return table
