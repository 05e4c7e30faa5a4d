"""How far a calibration or a benchmark is: a bar on a terminal, else a line a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from autospec.calibration.run import Progress as Step

LINE_SECONDS = 60.0
"""How often a line is written where there is no terminal."""


@contextmanager
def calibration_bar(
    console: Console, *, lines: bool = True, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[Step], None]]:
    """Gives a function to call with each step. `clock` in seconds; without `lines` nothing is
    written where there is no terminal."""
    if not console.is_terminal:
        yield _lines(console, clock) if lines else lambda _step: None
        return
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0, left="")

        def show(step: Step) -> None:
            bar.update(task, completed=step.share, description=step.what, left=_left(step))

        yield show


def _lines(console: Console, clock: Callable[[], float]) -> Callable[[Step], None]:
    told = clock()

    def show(step: Step) -> None:
        nonlocal told
        if clock() - told < LINE_SECONDS:
            return
        told = clock()
        parts = (f"{step.share:.0%}", _left(step), step.what)
        console.print(", ".join(filter(None, parts)), markup=False, highlight=False, soft_wrap=True)

    return show


def _left(step: Step) -> str:
    return "" if step.left is None else f"{step.left:.0f} s left at most"
