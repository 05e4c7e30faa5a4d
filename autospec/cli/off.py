"""`autospec off`."""

from __future__ import annotations

import click

from autospec.cli import completing


@click.command("off", short_help="Decode a model plainly, at once.")
@click.argument("model", shell_complete=completing.models)
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
@click.pass_context
def command(ctx: click.Context, model: str, as_json: bool) -> None:
    """Decode MODEL plainly, at once, until `autospec on` or a restart of the daemon."""
    from autospec.cli.reload import tell

    ctx.exit(0 if tell({"op": "off", "model": model}, as_json=as_json) else 1)
