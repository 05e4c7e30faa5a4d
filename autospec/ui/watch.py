"""`autospec status --watch`: one screen, redrawn in place, that fits the terminal it is on.

Piped, a line a model and second takes its place. Rates over time are remembered here, from one
answer of the daemon to the next.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from autospec.errors import AutospecError
from autospec.ui.braille import curve
from autospec.ui.status import LEVELS, STATES, bar, duration, starting_line

Json = dict[str, Any]

_SPARKS = "▁▂▃▄▅▆▇█"
_REMEMBERED = 240
_SIDE_BY_SIDE = 72
_FEWEST_EVENTS = 3
_HEAD = 2
_LINES_A_MODEL = 4
_MOST_ROWS = 9
_FEWEST_ROWS = 4


@dataclass
class Screen:
    """What is drawn, from the last answer and what was remembered of those before."""

    report: Json
    silent_for: float | None = None
    rates: dict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_REMEMBERED))
    )

    def take(self, report: Json) -> None:
        self.report, self.silent_for = report, None
        for model in report["models"]:
            rate = model["live"]["rate"] if model["live"]["busy"] else 0.0
            self.rates[model["name"]].append(rate or 0.0)

    def drawn(self, width: int, height: int, now: float) -> RenderableType:
        """At most `height` lines of `width` cells; `now` in seconds since 1970."""
        models = self.report["models"]
        spare = height - _HEAD - _FEWEST_EVENTS - 1 - len(models) * _LINES_A_MODEL
        most = _MOST_ROWS if width >= _SIDE_BY_SIDE else 2 * _MOST_ROWS
        rows = min(most, spare // max(1, len(models)))
        parts: list[RenderableType] = [self._head(now), Rule(style="dim")]
        if starting := self.report["starting"]:
            parts.append(_cut(Text(starting_line(starting), style="yellow")))
        for model in models:
            parts += self._model(model, width, rows if rows >= _FEWEST_ROWS else 0)
        used = sum(map(_lines, parts))
        parts += _decisions(self.report["events"], height - used - 1)
        return Group(*parts)

    def _head(self, now: float) -> RenderableType:
        daemon, engine = self.report["daemon"], self.report["engine"]
        words = Text.assemble(
            ("autospec", "bold"),
            f" {self.report['version']}, up {duration(daemon['for_seconds'])}; ",
            f"engine {engine['version']}, {engine['applier']['name']}",
        )
        if self.silent_for is not None:
            words = Text(f"no answer for {duration(self.silent_for)}; last seen:", style="red")
        table = Table.grid(expand=True, padding=(0, 1))
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True)
        table.add_row(words, Text(time.strftime("%H:%M:%S", time.localtime(now)), style="dim"))
        return table

    def _model(self, model: Json, width: int, rows: int) -> Iterable[RenderableType]:
        live, state = model["live"], model["state"]
        head = Text.assemble(
            (model["name"], "bold"),
            "  ",
            (state, f"bold {STATES.get(state, '')}"),
            f" {duration(model['for_seconds'])}  ",
        )
        head.append(_setting(model["setting"]))
        yield _cut(head)
        trouble = model["fault"] or (model["reason"] if state in ("failed", "backing off") else "")
        yield _cut(Text(trouble, style="red") if trouble else Text(_gains(live), style="green"))
        yield _cut(Text(_now(live)))
        yield _cut(Text(sparks(self.rates[model["name"]], width), style="cyan"))
        if rows:
            yield _body(model, width, rows)

    def line(self, now: float) -> str:
        """A line a model, for a pipe."""
        clock = time.strftime("%H:%M:%S", time.localtime(now))
        if starting := self.report["starting"]:
            return f"{clock} {starting_line(starting)}"
        return "\n".join(
            f"{clock} {model['name']} {model['state']}: {_now(model['live'])}"
            for model in self.report["models"]
        )


def watch(
    ask: Callable[[], Json],
    console: Console | None = None,
    every: float = 1.0,
    rounds: int | None = None,
) -> None:
    """Redraw until Ctrl-C, or so many `rounds`. A daemon that is away for a while is waited for.

    DaemonNotRunning when there is none at the beginning.
    """
    console = console or Console()
    screen = Screen(ask())
    screen.take(screen.report)
    last = time.monotonic()
    if not console.is_terminal:
        console.print(screen.line(time.time()), soft_wrap=True, markup=False, highlight=False)

    def turn() -> None:
        nonlocal last
        time.sleep(every)
        try:
            screen.take(ask())
            last = time.monotonic()
        except AutospecError:
            screen.silent_for = time.monotonic() - last

    done = 0
    if not console.is_terminal:
        while rounds is None or done < rounds:
            turn()
            done += 1
            if screen.silent_for is None:
                console.print(
                    screen.line(time.time()), soft_wrap=True, markup=False, highlight=False
                )
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while rounds is None or done < rounds:
            live.update(screen.drawn(console.width, console.height, time.time()), refresh=True)
            turn()
            done += 1


def sparks(values: Iterable[float], width: int) -> str:
    """The last `width` values as bars of one cell, the highest of them full."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    steps = len(_SPARKS) - 1
    return "".join(_SPARKS[round(value / top * steps)] if value > 0 else " " for value in shown)


def _setting(setting: Json) -> str:
    """In the fewest words: what is not said to be pinned was chosen."""
    if setting["type"] == "off":
        return "plain decoding" + _pinned(setting, "type")
    numbers = {name: setting[name] for name in ("n_max", "n_min", "p_min") if setting[name]}
    words = [f"{name} {value:g}{_pinned(setting, name)}" for name, value in numbers.items()]
    return "  ".join([setting["type"], *words, *(["live"] if setting["live"] else [])])


def _pinned(setting: Json, name: str) -> str:
    return " (pinned)" if setting["sources"].get(name) == "pinned" else ""


def _now(live: Json) -> str:
    words = [f"{live['busy']} of {live['slots']} slots busy"]
    if live["rate"] is not None:
        words.append(f"{live['rate']:.1f} tokens/s a request")
    if live["depth"] is not None:
        words.append(f"depth {live['depth']:.0f}")
    if live["acceptance"] is not None:
        words.append(f"{live['acceptance']:.0%} of {live['drafted']} drafted accepted")
    elif not live["tokens"]:
        words.append("no tokens yet")
    return ", ".join(words)


def _gains(live: Json) -> str:
    words = [
        f"{live[key]:.2f}x {name}"
        for key, name in (("gain_measured", "measured"), ("gain_predicted", "predicted"))
        if live[key]
    ]
    return f"{', '.join(words)} over plain decoding" if words else ""


def _body(model: Json, width: int, rows: int) -> RenderableType:
    """Acceptance by position and the cost of a round, side by side where there is room."""
    costs, live = model.get("costs"), model["live"]
    if costs is None or (width < _SIDE_BY_SIDE and rows < 2 * _FEWEST_ROWS):
        return _accepted(live, width, rows)
    if width < _SIDE_BY_SIDE:
        upper = rows // 2
        below = _costs(costs, live, model["setting"], width, rows - upper)
        return Group(_accepted(live, width, upper), below)
    left = width * 2 // 5
    accepted = _accepted(live, left, rows)
    table = Table.grid(padding=(0, 2))
    table.add_column(width=left - 2, no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row(accepted, _costs(costs, live, model["setting"], width - left - 2, rows))
    return table


def _accepted(live: Json, width: int, rows: int) -> RenderableType:
    shares = [one for one in live["by_position"] if one["share"] is not None]
    lines = [Text("accepted by position", style="dim")]
    kept = shares if len(shares) < rows else shares[: rows - 2]
    room = min(40, max(4, width - 11))
    for one in kept:
        line = Text(f"{one['position']:>3} ")
        line.append(bar(one["share"], room), style="green")
        lines.append(line.append(f" {one['share']:>4.0%}"))
    if len(kept) < len(shares):
        last = shares[-1]
        more = f"    … {last['share']:.0%} at position {last['position']}"
        lines.append(Text(more, style="dim"))
    if not shares:
        lines.append(Text("    nothing drafted yet", style="dim"))
    return Group(*map(_cut, lines[:rows]))


def _costs(costs: Json, live: Json, setting: Json, width: int, rows: int) -> RenderableType:
    """Milliseconds of a round over the tokens drafted in it; ● is where rounds are now."""
    times = costs["round_ms"]
    drafted = live["drafted"] / live["rounds"] if live["rounds"] else setting["n_max"]
    point = min(len(times) - 1, max(0, round(drafted)))
    what = f"ms a round by tokens drafted; ● {times[point]:.0f} ms at {point}"
    lines = [Text(what[:width], style="dim")]
    drawn = curve(times, width - 7, max(2, rows - 2), point)
    labels = [f"{max(times):6.0f} ", *[" " * 7] * (len(drawn) - 2), f"{0:6.0f} "]
    for label, row in zip(labels, drawn, strict=True):
        text = Text(label, style="dim")
        before, mark, after = row.partition("●")
        text.append(before, style="cyan").append(mark, style="bold yellow")
        lines.append(text.append(after, style="cyan"))
    end = f"{len(times) - 1}"
    lines.append(Text(f"{'':7}0{end:>{max(1, width - 8)}}", style="dim"))
    return Group(*map(_cut, lines[:rows]))


def _decisions(events: list[Json], room: int) -> Iterable[RenderableType]:
    if room < 1:
        return
    yield Rule(style="dim")
    for event in events[-(room - 1) :] if room > 1 else []:
        clock = time.strftime("%H:%M:%S ", time.localtime(event["at"]))
        prefix = f"{event['model']}: " if event["model"] else ""
        line = Text(clock, style="dim")
        yield _cut(line.append(prefix + event["text"], style=LEVELS[event["level"]] or "default"))


def _cut(text: Text) -> Text:
    """One line, whatever the width."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _lines(part: RenderableType) -> int:
    """How many lines a part takes: all are of one line but tables with groups in them."""
    if isinstance(part, Group):
        return sum(map(_lines, part.renderables))
    if isinstance(part, Table) and part.columns:
        cells = [cell for column in part.columns for cell in column.cells]
        return max(map(_lines, cells), default=1)
    return 1
