"""`autospec status`: what the daemon does."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
def command(as_json: bool, watch: bool) -> None:
    """Show what the running daemon does, and why."""
    from autospec.daemon.control import ask

    report = ask({"op": "status"})
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    if watch:
        from autospec.ui.watch import watch as keep_watching

        keep_watching(lambda: ask({"op": "status"}))
    else:
        from autospec.ui.status import print_status

        print_status(report)
