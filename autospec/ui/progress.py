"""A progress bar for calibrations: what is being measured, how much time is left at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from autospec.calibration.run import Progress as Step


@contextmanager
def calibration_bar(console: Console) -> Iterator[Callable[[Step], None]]:
    """Gives a function to call with each step. Without a terminal nothing is drawn."""
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("starting", total=1.0, left="")

        def show(step: Step) -> None:
            left = "" if step.left is None else f"{step.left:.0f} s left at most"
            bar.update(task, completed=step.share, description=step.what, left=left)

        yield show
