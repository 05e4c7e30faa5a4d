"""`autospec fit`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("fit")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--draft-cost",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Cost of one draft step, in units of a plain decoding step.",
)
@click.option("--png", type=click.Path(path_type=Path), help="Write the plot as a picture, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(file: Path, draft_cost: float, png: Path | None, as_json: bool) -> None:
    """Fit the power laws of llama.cpp pull request 14132 to a cost curve.

    FILE is JSON with relative cost curves, or the output of llama-batched-bench as jsonl.
    Beside the laws and their packed flags it shows what the rules of pull requests 14132 and
    17034 do on the curve, what the optimal rule does, and how much the old ones lose.
    """
    from autospec.calibration.curves import read_curves
    from autospec.tuning.curvefit import examine
    from autospec.ui.fit import picture_paths, show_fit, write_picture

    fits = [
        examine(
            curve.name,
            curve.relative_cost,
            skip=curve.skip,
            draft_cost=draft_cost,
            notes=curve.notes,
        )
        for curve in read_curves(file)
    ]
    if png is not None:
        for fit, path in zip(fits, picture_paths(png, len(fits)), strict=True):
            write_picture(fit, path)
    if as_json:
        click.echo(json.dumps({"curves": [fit.to_json() for fit in fits]}, indent=2))
        return
    from rich.console import Console

    console = Console()
    for fit in fits:
        show_fit(fit, console)
