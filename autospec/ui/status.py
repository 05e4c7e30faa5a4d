"""`autospec status` as a person reads it: one block a model, then what happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

Json = dict[str, Any]

STATES = {"ready": "green", "loading": "yellow", "failed": "red", "backing off": "yellow"}
LEVELS = {"info": "", "warning": "yellow", "error": "red"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BAR = 16
_EVENTS = 6


def print_status(report: Json) -> None:
    Console().print(status(report))


def status(report: Json) -> RenderableType:
    parts: list[RenderableType] = [_head(report)]
    if starting := report["starting"]:
        parts += [Text(), Text(starting_line(starting), style="yellow")]
    for model in report["models"]:
        parts += [Text(), _model(model)]
    parts += [Text(), _events(report["events"], report["earlier_events"])]
    return Group(*parts)


def _head(report: Json) -> RenderableType:
    daemon, engine, hardware = report["daemon"], report["engine"], report["hardware"]
    table = _pairs()
    since = duration(daemon["for_seconds"])
    table.add_row("autospec", f"{report['version']}, pid {daemon['pid']}, up {since}")
    table.add_row("configuration", daemon["config"])
    build = f", built {engine['build_date']}" if engine["build_date"] else ""
    table.add_row("engine", f"{engine['version']} [{engine['identity'][:12]}]{build}")
    table.add_row("applier", f"{engine['applier']['name']}: {engine['applier']['why']}")
    table.add_row("machine", machine(hardware))
    return table


def starting_line(starting: Json) -> str:
    left = starting["left"]
    words = f"starting {starting['model']}: {starting['what']}"
    return words if left is None else f"{words}; {left:.0f} s left at most"


def machine(hardware: Json) -> str:
    """One line: GPUs if there are any, the CPU with its usable cores, the memory."""
    cpu, memory = hardware["cpu"], hardware["memory"]
    gpus = [gpu["name"] or "unnamed GPU" for gpu in hardware["gpus"]]
    words = [*gpus, f"{cpu['model'] or 'unknown CPU'}, {_or_unknown(cpu['usable'])} cores"]
    if memory["total"]:
        words.append(f"{memory['total'] / 2**30:.0f} GiB")
    return "; ".join(words)


def _model(model: Json) -> RenderableType:
    table = _pairs()
    state = model["state"]
    line = Text.assemble(
        (state, f"bold {STATES.get(state, '')}"), f" for {duration(model['for_seconds'])}"
    )
    if model["pid"]:
        line.append(f", pid {model['pid']}, {model['address']}")
    table.add_row(Text(model["name"], style="bold"), line)
    for name, trouble in _troubles(model):
        table.add_row(name, trouble)
    table.add_row("setting", _setting(model["setting"]))
    table.add_row("why", model["setting"]["why"])
    if words := without_pins(model["setting"]):
        table.add_row("without pins", words)
    if model["not_live"]:
        table.add_row("not live", Text(model["not_live"], style="yellow"))
    if thresholds := _thresholds(model["setting"]):
        table.add_row("thresholds", thresholds)
    table.add_row("live", _live(model["live"]))
    if model["live"]["rounds"]:
        table.add_row("accepted", _acceptance(model["live"]))
    elif model["live"]["rounds"] is None and model["setting"]["type"] != "off":
        table.add_row("accepted", Text("this build of llama.cpp does not tell", style="dim"))
    if gain := _gain(model["live"], model["setting"]):
        table.add_row("gain", gain)
    if model["decision"]:
        table.add_row(
            "last thought", f"{model['decision']['action']}: {model['decision']['reason']}"
        )
    table.add_row("calibration", _calibration(model["calibration"]))
    return table


def _troubles(model: Json) -> Iterator[tuple[str, Text]]:
    """What is not as it should be, and what is about to change."""
    if model["state"] in ("failed", "backing off"):
        yield "", Text(model["reason"], style="red")
    if model["fault"]:
        yield "fault", Text(model["fault"], style="red")
    if model["degraded"]:
        yield "degraded", Text(f"memory ran out: {', '.join(model['degraded'])}", style="yellow")
    if model["planned"]:
        yield "planned", Text(f"a restart: {model['planned']}")


def _setting(setting: Json) -> Text:
    text = Text()
    shown = ("type",) if setting["type"] == "off" else ("type", "n_max", "n_min", "p_min")
    for name in shown:
        source = setting["sources"].get(name, "auto")
        text.append(f"{name} {setting[name]:g}" if name != "type" else f"{setting['type']}")
        text.append(f" {source}  " if source != setting["type"] else "  ", style="dim")
    return text


def without_pins(setting: Json) -> str | None:
    """What would be chosen if nothing were pinned, and what the pins cost; None without pins."""
    free = setting["unpinned"]
    if free is None:
        return None
    chosen = "plain decoding"
    if free["type"] != "off":
        numbers = {name: free[name] for name in ("n_max", "n_min", "p_min") if free[name]}
        chosen = " ".join([free["type"], *(f"{name} {value:g}" for name, value in numbers.items())])
        chosen += ", live" if free["live"] else ""
    words = f"{chosen}: {free['predicted_rate']:.1f} tokens/s predicted"
    if (loss := free["loss"]) is None:
        return f"{words}; what is pinned cannot be predicted"
    if abs(loss) < 0.005:
        return f"{words}; the pins cost nothing"
    return f"{words}; the pins {'cost' if loss > 0 else 'gain'} {abs(loss):.0%}"


def _thresholds(setting: Json) -> str | None:
    """The vector, as long as it is not "never"."""
    values = setting["thresholds"] or []
    kept = [f"{value:.2f}" for value in values if value is not None]
    if not kept:
        return None
    where = "in force, live" if setting["live"] else "flags cannot carry them"
    return f"{' '.join(kept)}  (survival needed at each position; {where})"


def _live(live: Json) -> str:
    words = [f"{live['busy']} of {live['slots']} slots busy"]
    if live["depth"] is not None:
        words.append(f"depth {live['depth']:.0f}")
    if live["rate"] is not None:
        words.append(f"{live['rate']:.1f} tokens/s a request in the last minute")
    elif not live["tokens"]:
        words.append("no tokens yet")
    return ", ".join(words)


def _acceptance(live: Json) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for position in live["by_position"]:
        share = position["share"]
        if share is not None:
            table.add_row(str(position["position"]), bar(share), f"{share:.0%}")
    caption = f"of {live['rounds']} drafts; {live['acceptance']:.0%} of {live['drafted']} tokens"
    return Group(Text(caption), table)


def _gain(live: Json, setting: Json) -> str | None:
    words = []
    if live["gain_predicted"]:
        words.append(f"{live['gain_predicted']:.2f}x predicted")
    if live["gain_measured"]:
        words.append(f"{live['gain_measured']:.2f}x measured")
    if not words:
        return None
    plain = setting["predicted_plain_rate"]
    return f"{', '.join(words)} over plain decoding ({plain:.1f} tokens/s by calibration)"


def _calibration(calibration: Json | None) -> str:
    if calibration is None:
        return "none"
    age = duration(time.time() - calibration["made_at"])
    depths = ", ".join(map(str, calibration["depths"]))
    words = f"{age} old, took {calibration['seconds']:.0f} s, depths {depths}, "
    words += f"{calibration['rounds']} rehearsed rounds"
    return words + (" (unsure: run autospec calibrate --force)" if calibration["unsure"] else "")


def _events(events: list[Json], earlier: list[Json]) -> RenderableType:
    """The last few of this life; while it is young, dimmed ones of lives before come on top."""
    table = Table.grid(padding=(0, 1))
    room = max(0, _EVENTS - len(events))
    shown = [(event, "%d %b %H:%M", "dim") for event in earlier[max(0, len(earlier) - room) :]]
    shown += [(event, "%H:%M:%S", LEVELS[event["level"]]) for event in events[-_EVENTS:]]
    for event, clock, style in shown:
        when = time.strftime(clock, time.localtime(event["at"]))
        prefix = f"{event['model']}: " if event["model"] else ""
        table.add_row(Text(when, style="dim"), Text(prefix + event["text"], style=style))
    return table


def bar(share: float, width: int = _BAR) -> str:
    """A bar of `width` cells filled by `share` (0 to 1), to an eighth of a cell."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def duration(seconds: float) -> str:
    """Two units at most: "42 s", "3 min 7 s", "2 h 5 min", "4 d 1 h"."""
    whole = max(0, int(seconds))
    for size, unit, smaller, small_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"


def _pairs() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True, max_width=16)
    table.add_column(overflow="fold")
    return table


def _or_unknown(value: object) -> object:
    return "unknown" if value is None else value
