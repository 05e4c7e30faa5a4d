"""`autospec on`."""

from __future__ import annotations

import click

from autospec.cli import completing


@click.command("on", short_help="Let a model speculate again.")
@click.argument("model", shell_complete=completing.models)
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
@click.pass_context
def command(ctx: click.Context, model: str, as_json: bool) -> None:
    """Let MODEL speculate again, after `autospec off`."""
    from autospec.cli.reload import tell

    ctx.exit(0 if tell({"op": "on", "model": model}, as_json=as_json) else 1)
