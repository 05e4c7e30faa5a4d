"""What was played on recorded curves, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from autospec.bench.replay import Mixed, Played


def print_replay(played: Sequence[Played], mixed: Sequence[Mixed]) -> None:
    """One table a curve."""
    console = Console()
    for curve in dict.fromkeys(one.curve for one in played):
        here = [one for one in played if one.curve == curve]
        console.print(_table(curve, here, [one for one in mixed if one.curve == curve]))
    console.print(
        "Speed over plain decoding: autospec on rounds that its thresholds were not fitted to; "
        "the triples and the oracle know them all.",
        style="dim",
    )


def _table(curve: str, played: Sequence[Played], mixed: Sequence[Mixed]) -> Table:
    table = Table(title=curve, title_justify="left", box=None, header_style="cyan", pad_edge=False)
    table.add_column("rounds")
    for name in ("autospec", "best triple", "rule of 17034", "oracle"):
        table.add_column(name, justify="right")
    for one in played:
        found = one.found
        rates = (found.best_scalar, found.pr17034, found.oracle)
        chosen = f"{one.chosen:.2f}x" if one.speculate else "off"
        table.add_row(one.text, chosen, *(f"{rate / found.plain:.2f}x" for rate in rates))
    for mixture in mixed:
        chosen, best = f"{mixture.chosen:.2f}x", f"{mixture.best_scalar:.2f}x"
        table.add_row("all of them", chosen, best, style="bold")
    return table
