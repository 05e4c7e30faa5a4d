"""`autospec logs`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from autospec.cli import completing

if TYPE_CHECKING:
    from autospec.daemon.reading_logs import Line

_COLOURS = {"warning": "yellow", "error": "red"}


@click.command("logs", short_help="Show what happened, and what llama-server said.")
@click.argument("model", required=False, shell_complete=completing.models)
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, 1_000_000),
    default=50,
    show_default=True,
    help="How many of the last lines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def command(model: str | None, follow: bool, lines: int, as_json: bool) -> None:
    """Show what happened, and what llama-server said, of all models or of MODEL.

    Works without a running daemon, and across its restarts.
    """
    from autospec.daemon.reading_logs import Logs
    from autospec.state.store import Store

    with Store.reading() as store, Logs(store, model) as logs:
        for line in logs.last(lines):
            click.echo(_written(line, as_json=as_json))
        if follow:
            for line in logs.follow():
                click.echo(_written(line, as_json=as_json))


def _written(line: Line, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(vars(line))
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    text = click.style(line.text, fg=_COLOURS.get(line.level), dim=line.source != "autospec")
    return f"{when} {line.model or 'autospec'}{'>' if line.source != 'autospec' else ':'} {text}"
