"""`autospec demo`: the whole job on a small real model pair."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option("--quick", is_flag=True, help="Half the calibration, half the prompts.")
@click.option(
    "--draft",
    "grade",
    type=click.Choice(["good", "fair", "poor"]),
    default="good",
    show_default=True,
    help="Which draft: the original, one block dropped, three blocks dropped.",
)
@click.option("--engine", type=click.Path(path_type=Path), help="llama-server, or its folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(quick: bool, grade: str, engine: Path | None, as_json: bool) -> None:
    """Show the whole job on a small real model pair.

    Fetches the model and, where there is no engine, builds one first. Then it calibrates,
    serves, learns from traffic, and compares plain decoding, the engine's default and the
    tuned setting on the same prompts, in turn.
    """
    from autospec.daemon.one_thread import calm_arithmetic

    calm_arithmetic()

    import asyncio

    from rich.console import Console

    from autospec.demo.assets import ensure_models, show
    from autospec.demo.build_engine import ensure
    from autospec.demo.run import FULL, QUICK, run_demo
    from autospec.engine.find import find_engine
    from autospec.hardware.snapshot import snapshot
    from autospec.ui.demo import outcome_json, print_outcome
    from autospec.ui.progress import calibration_bar
    from autospec.ui.status import machine

    console = Console(stderr=True)
    found = find_engine(ensure(str(engine) if engine else None))
    hardware = snapshot()
    models = ensure_models(show)
    drafts = {
        "good": models.draft,
        "fair": models.draft_one_dropped,
        "poor": models.draft_three_dropped,
    }
    console.print(f"engine {found.version} at {found.folder}", highlight=False)
    console.print(f"machine: {machine(hardware.to_dict())}", highlight=False)
    with calibration_bar(console) as on_progress:
        outcome = asyncio.run(
            run_demo(
                found,
                models.target,
                drafts[grade],
                hardware.key(),
                QUICK if quick else FULL,
                say=lambda line: console.print(line, highlight=False, markup=False),
                on_progress=on_progress,
            )
        )
    if as_json:
        click.echo(json.dumps(outcome_json(outcome), indent=2, allow_nan=False))
    else:
        print_outcome(outcome)
