"""`autospec lab`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

_FILE = click.Path(path_type=Path)


@click.command("lab")
@click.option(
    "--cost", "cost_file", type=_FILE, help="Output of llama-batched-bench --output-format jsonl."
)
@click.option(
    "--rounds",
    "rounds_file",
    type=_FILE,
    help="Recorded rounds, a JSON object a line: p, accepted, draft_ms, verify_ms.",
)
@click.option(
    "--depth", type=click.IntRange(0), default=0, show_default=True, help="Context depth, tokens."
)
@click.option("--simulate", "mixture_file", type=_FILE, help="Play a mixture of phases instead.")
@click.option(
    "--round-limit/--no-round-limit",
    default=True,
    help="Simulate an engine that takes an n_max for each round, as under the live policy, or not.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    cost_file: Path | None,
    rounds_file: Path | None,
    depth: int,
    mixture_file: Path | None,
    round_limit: bool,
    as_json: bool,
) -> None:
    """Compare stopping rules on recorded rounds, offline.

    Replays the rounds under every rule with one cost model: plain decoding, the best fixed
    draft length and the best scalar triple in hindsight, the rule of pull request 17034, our
    thresholds on rounds that they were not fitted to, and an oracle.

    With --simulate it plays phases of text, load and depth instead: settings that follow them
    against the best triple for all of them in hindsight.
    """
    from autospec.calibration.lab import compare_files, simulate_file
    from autospec.ui.lab import comparison, simulation

    if mixture_file is not None:
        played = simulate_file(mixture_file, limit_is_free=round_limit)
        _show(simulation(played), played.to_json(), as_json=as_json)
        return
    if cost_file is None or rounds_file is None:
        raise click.UsageError("give --cost and --rounds, or --simulate")
    found = compare_files(cost_file, rounds_file, depth=depth)
    _show(comparison(found), found.to_json(), as_json=as_json)


def _show(table: Any, data: dict[str, Any], *, as_json: bool) -> None:  # noqa: ANN401
    if as_json:
        click.echo(json.dumps(data, indent=2))
        return
    from rich.console import Console

    Console().print(table)
