"""`autospec calibrate`: measure without serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autospec.cli import completing

if TYPE_CHECKING:
    from autospec.daemon.calibrating import Calibrated


@click.command()
@click.argument("model", required=False, shell_complete=completing.models)
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--engine", type=click.Path(path_type=Path), help="llama-server, or its folder.")
@click.option("--budget", type=click.FloatRange(min=1), help="Seconds it may take.")
@click.option("--force", is_flag=True, help="Measure again what is already known.")
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    help="Write costs and rounds to a file to give away; it names no path, host or model.",
)
@click.option("--json", "as_json", is_flag=True, help="Print costs and plan as JSON.")
def command(
    model: str | None,
    config: Path | None,
    engine: Path | None,
    budget: float | None,
    force: bool,
    export: Path | None,
    as_json: bool,
) -> None:
    """Measure what batches cost on this machine, and what that means.

    MODEL is a name from the configuration; without it every model is measured. Stop the daemon
    first: a server at work makes the figures worthless.
    """
    from autospec.daemon.one_thread import calm_arithmetic

    calm_arithmetic()

    import asyncio

    from rich.console import Console

    from autospec.config.load import find_config, load
    from autospec.daemon.calibrating import calibrate_models
    from autospec.ui.calibration import calibration_json, print_calibration
    from autospec.ui.progress import calibration_bar

    loaded = load(find_config(config))
    with calibration_bar(Console(stderr=True)) as on_progress:
        found = asyncio.run(
            calibrate_models(
                loaded, model, engine=engine, budget=budget, force=force, on_progress=on_progress
            )
        )
    if export is not None:
        _export(found, export)
    if as_json:
        click.echo(json.dumps([calibration_json(one) for one in found], indent=2))
        return
    for one in found:
        print_calibration(one)


def _export(found: list[Calibrated], path: Path) -> None:
    from autospec.calibration.donation import donation_json
    from autospec.errors import UsageError
    from autospec.hardware.snapshot import snapshot

    if len(found) != 1:
        raise UsageError("a file holds one calibration", hint="name the model to export")
    hardware = snapshot().to_dict()
    chips = [gpu["name"] for gpu in hardware["gpus"]] or [hardware["cpu"]["model"]]
    document = donation_json(found[0].calibration, hardware, name=" + ".join(map(str, chips)))
    try:
        path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
