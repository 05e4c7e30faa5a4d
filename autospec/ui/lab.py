"""What `autospec lab` shows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autospec.tuning.lab import Comparison


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
