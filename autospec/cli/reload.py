"""`autospec reload`."""

from __future__ import annotations

import json
from typing import Any

import click

_PATIENCE = 3600.0
"""Seconds: what is new may have to be measured before it is in force."""


@click.command("reload", short_help="Let the running daemon read its configuration again.")
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Let the running daemon read its configuration again.

    Only models that changed are restarted. A file with faults leaves everything as it is. Exits
    with 0 when the new configuration is in force, with 2 for a faulty file, with 6 without a
    daemon.
    """
    ctx.exit(0 if tell({"op": "reload"}, as_json=as_json) else 1)


def tell(request: dict[str, Any], *, as_json: bool) -> bool:
    """Send the daemon an order, print its answer, and say whether it obeyed.

    The answer is `ok`, `text`, and where models are concerned `models`: a sentence for each.
    """
    from autospec.daemon.control import ask

    answer = ask(request, patience=_PATIENCE)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        click.echo(answer.get("text", "done"))
        for name, what in dict(answer.get("models") or {}).items():
            click.echo(f"  {name}: {what}")
    return bool(answer.get("ok", True))
