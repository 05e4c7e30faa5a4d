"""`autospec explain`: why a model runs as it does."""

from __future__ import annotations

import json
from pathlib import Path

import click

from autospec.cli import completing


@click.command()
@click.argument("model", required=False, shell_complete=completing.models)
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--engine", type=click.Path(path_type=Path), help="llama-server, or its folder.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
def command(model: str | None, config: Path | None, engine: Path | None, as_json: bool) -> None:
    """Tell why a model runs as it does: costs, thresholds, alternatives, decisions.

    The running daemon is asked. Without one, the answer follows from the configuration, the
    calibrations and what was learned before; only then --config and --engine count.
    """
    from autospec.daemon.explain_stored import explanation

    document = explanation(model, config, engine)
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    from autospec.ui.explain import print_explanation

    print_explanation(document)
