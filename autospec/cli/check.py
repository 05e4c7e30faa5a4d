"""`autospec check`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("check", short_help="Check a configuration file and its models' files.")
@click.option("--config", type=click.Path(path_type=Path), help="The file to check.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def command(ctx: click.Context, config: Path | None, as_json: bool) -> None:
    """Check a configuration file and report every fault, one a line.

    Where there is none, the headers of the model files are read: whether each is whole, and
    whether target and draft belong together. Nothing is launched.

    Exits with 0 if all is well, with 2 for faults in the file, with 4 for a model that cannot be
    served.
    """
    from autospec.config.check import check, check_files
    from autospec.config.load import find_config

    report = check_files(check(find_config(config)))
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        click.echo("\n".join(report.lines()))
    ctx.exit(report.exit_code)
