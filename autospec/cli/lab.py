"""`autospec lab`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("lab")
@click.option(
    "--cost",
    "cost_file",
    type=click.Path(path_type=Path),
    required=True,
    help="Output of llama-batched-bench --output-format jsonl.",
)
@click.option(
    "--rounds",
    "rounds_file",
    type=click.Path(path_type=Path),
    required=True,
    help="Recorded rounds, a JSON object a line: p, accepted, draft_ms, verify_ms.",
)
@click.option(
    "--depth", type=click.IntRange(0), default=0, show_default=True, help="Context depth, tokens."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(cost_file: Path, rounds_file: Path, depth: int, as_json: bool) -> None:
    """Compare stopping rules on recorded rounds, offline.

    Replays the rounds under every rule with one cost model: plain decoding, the best fixed
    draft length and the best scalar triple in hindsight, the rule of pull request 17034, our
    thresholds on rounds that they were not fitted to, and an oracle.
    """
    from autospec.calibration.lab import compare_files
    from autospec.ui.lab import comparison

    found = compare_files(cost_file, rounds_file, depth=depth)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
        return
    from rich.console import Console

    Console().print(comparison(found))
