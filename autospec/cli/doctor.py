"""`autospec doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--engine", type=click.Path(path_type=Path), help="llama-server, or its folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def command(ctx: click.Context, config: Path | None, engine: Path | None, as_json: bool) -> None:
    """Find what is wrong, and say how to mend it.

    Looks at the engine, the configuration, models, calibrations, addresses and permissions, and
    changes no setting. Exits with 0 if there is no error, with 1 if there are any.
    """
    from autospec.daemon.doctor import examine

    found = examine(config, engine)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        from autospec.ui.doctor import print_examination

        print_examination(found)
    ctx.exit(0 if found.ok else 1)
