"""`autospec completion`."""

from __future__ import annotations

import click

_SHELLS = ("bash", "fish", "zsh")


@click.command("completion", short_help="Print what a shell needs to complete commands.")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print what a shell needs to complete commands, options and names of models.

    Write it where the shell looks: bash takes
    ~/.local/share/bash-completion/completions/autospec, fish
    ~/.config/fish/completions/autospec.fish, zsh a file _autospec in a folder of $fpath.
    """
    from click.shell_completion import get_completion_class

    from autospec.cli.app import COMPLETION, NAME, cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, NAME, COMPLETION).source())
