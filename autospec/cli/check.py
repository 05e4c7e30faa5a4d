"""`autospec check`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("check", short_help="Check a configuration file; report every fault.")
@click.option("--config", type=click.Path(path_type=Path), help="The file to check.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def command(ctx: click.Context, config: Path | None, as_json: bool) -> None:
    """Check a configuration file and report every fault, one a line.

    Exits with 0 if there is none, with 2 if there are any.
    """
    from autospec.config.check import check
    from autospec.config.load import find_config

    report = check(find_config(config))
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        click.echo("\n".join(report.lines()))
    ctx.exit(0 if not report.faults else 2)
