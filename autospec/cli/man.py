"""`autospec man`."""

from __future__ import annotations

import click


@click.command("man", short_help="Print the manual page.")
@click.option("--markdown", is_flag=True, help="Print the reference in the README instead.")
def command(markdown: bool) -> None:
    """Print the manual page, made from the help of every command.

    To read it: autospec man | man -l -. To keep it: write it to
    ~/.local/share/man/man1/autospec.1.
    """
    from autospec.cli.app import NAME, cli
    from autospec.ui.manual import manual, reference

    click.echo((reference if markdown else manual)(cli, NAME), nl=False)
