"""`autospec unpin`."""

from __future__ import annotations

from pathlib import Path

import click

from autospec.cli import completing


@click.command("unpin", short_help="Let autospec choose again what was pinned.")
@click.argument("model", shell_complete=completing.models)
@click.argument("keys", nargs=-1, metavar="[KEY…]", shell_complete=completing.pins)
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--json", "as_json", is_flag=True, help="Print what changed as JSON.")
def command(model: str, keys: tuple[str, ...], config: Path | None, as_json: bool) -> None:
    """Let autospec choose again what was pinned: the KEYs, or without any all of a model.

    Comments and order of the file stay. A running daemon takes it up with `autospec reload`.
    """
    from autospec.cli.pin import show
    from autospec.config.load import find_config
    from autospec.config.pinning import unpin

    show(unpin(find_config(config), model, keys), as_json=as_json)
