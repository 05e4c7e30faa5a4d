"""`autospec schema`."""

from __future__ import annotations

import json

import click


@click.command("schema", short_help="Print the JSON schema of autospec.toml.")
@click.option("--example", is_flag=True, help="Print a file that documents every option instead.")
def command(example: bool) -> None:
    """Print the JSON schema of autospec.toml, for editors that complete and check it."""
    if example:
        from autospec.config.example import example as documented

        click.echo(documented(), nl=False)
    else:
        from autospec.config.json_schema import published

        click.echo(json.dumps(published(), indent=2))
