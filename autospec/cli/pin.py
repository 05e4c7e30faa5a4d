"""`autospec pin`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autospec.cli import completing

if TYPE_CHECKING:
    from autospec.config.pinning import Pinned


@click.command(
    "pin",
    short_help="Fix values of a model in the configuration file.",
    epilog="For example: autospec pin chat n_max=6 p_min=0.4",
)
@click.argument("model", shell_complete=completing.models)
@click.argument(
    "values", nargs=-1, required=True, metavar="KEY=VALUE…", shell_complete=completing.assignments
)
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--json", "as_json", is_flag=True, help="Print what changed as JSON.")
def command(model: str, values: tuple[str, ...], config: Path | None, as_json: bool) -> None:
    """Fix values of a model in the configuration file; the rest is chosen around them.

    KEY is type, n_max, n_min, p_min or thresholds. Comments and order stay; values that do not
    fit leave the file alone. A running daemon takes it up with `autospec reload`.
    """
    from autospec.config.load import find_config
    from autospec.config.pinning import pin_words

    show(pin_words(find_config(config), model, values), as_json=as_json)


def show(done: Pinned, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(done.as_json(), indent=2))
        return
    for change in done.changes:
        click.echo(f"{done.model}: {change}")
    if done.changed:
        click.echo(f"wrote {done.path}; a running daemon takes it up with `autospec reload`")
    else:
        click.echo(f"{done.path} stays as it is")
