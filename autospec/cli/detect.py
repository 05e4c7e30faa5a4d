"""`autospec detect`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option("--engine", type=click.Path(path_type=Path), help="llama-server, or its folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; what is unknown is null.")
def command(engine: Path | None, as_json: bool) -> None:
    """Show the GPUs, the CPU and the memory, and what the engine can compute on."""
    from dataclasses import asdict

    from autospec.engine.devices import view
    from autospec.hardware.snapshot import snapshot

    hardware, seen = snapshot(), view(engine)
    if as_json:
        answer = {**hardware.to_dict(), "key": hardware.key(), "engine": asdict(seen)}
        click.echo(json.dumps(answer, indent=2))
        return
    from rich.console import Console

    from autospec.ui.hardware import machine

    Console().print(machine(hardware, seen))
