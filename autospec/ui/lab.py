"""What `autospec lab` shows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autospec.tuning.lab import Comparison
from autospec.tuning.simulate import Result


def comparison(found: Comparison) -> RenderableType:
    """One row a contender, with what it knew when it chose."""
    triple = found.scalar
    rows = (
        ("plain", found.plain, "no draft loaded"),
        ("best fixed length", found.best_fixed, f"n_max {found.fixed}, in hindsight"),
        (
            "best triple",
            found.best_scalar,
            f"n_max {triple.n_max}, n_min {triple.n_min}, p_min {triple.p_min:.2f}, in hindsight",
        ),
        ("rule of 17034", found.pr17034, "average cost, probabilities as reported"),
        ("vector", found.vector, "ours, on rounds it has not seen"),
        ("oracle", found.oracle, "knows what will be accepted"),
    )
    table = Table(title=f"{found.rounds} recorded rounds", title_justify="left")
    table.add_column("rule")
    table.add_column("tokens/s", justify="right")
    table.add_column("over plain", justify="right")
    table.add_column("setting")
    for name, rate, setting in rows:
        style = "bold" if name == "vector" else ""
        table.add_row(name, f"{rate:.2f}", f"{rate / found.plain:.2f}x", setting, style=style)
    gap = found.gap_closed
    closed = "there is no gap to close" if gap is None else f"gap closed: {gap:.2f}"
    return Group(table, Text(f"{closed} (of the way from the best triple to the oracle)"))


def simulation(found: Result) -> RenderableType:
    """One row a phase: what was going on, and how fast each player was."""
    table = Table(title="tokens/s in each phase", title_justify="left")
    table.add_column("text")
    for name in ("slots", "depth", "plain", "tuned", "best triple", "ratio", "best of the phase"):
        table.add_column(name, justify="right")
    rates = (found.plain, found.tuned, found.static, found.best_of_phase)
    for phase, *row in zip(found.phases, *rates, strict=True):
        low, high = phase.depth
        depth = f"{low:g}–{high:g}" if high > low else f"{low:g}"
        table.add_row(phase.text, str(phase.slots), depth, *_row(*row))
    table.add_section()
    table.add_row("all tokens", "", "", *_row(*map(found.total, rates)), style="bold")
    n_max, n_min, p_min = found.triple
    told = (
        f"best triple for all phases, in hindsight: n_max {n_max}, n_min {n_min}, "
        f"p_min {p_min:.2f}; best of the phase: another triple for each, in hindsight; "
        f"restarts without the draft and with it: {found.restarts}"
    )
    return Group(table, Text(told))


def _row(plain: float, tuned: float, static: float, best: float) -> tuple[str, ...]:
    ratio = f"{tuned / static:.2f}x"
    return f"{plain:.2f}", f"{tuned:.2f}", f"{static:.2f}", ratio, f"{best:.2f}"
