"""`autospec bench`: speculation settings compared on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from autospec.bench.assemble import Wishes
    from autospec.bench.suite import Suite
    from autospec.config.schema import Config

_FILE = click.Path(path_type=Path)


def _names(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _counts(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    if text is None:
        return None
    counts = []
    for part in _names(context, parameter, text):
        if not part.isascii() or not part.isdecimal() or len(part) > 7:
            raise click.BadParameter(f"{part!r} is no number", context, parameter)
        counts.append(int(part))
    return tuple(sorted(set(counts)))


def _slots(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    counts = _counts(context, parameter, text) or ()
    if any(not 1 <= count <= 64 for count in counts):
        raise click.BadParameter("between 1 and 64 slots", context, parameter)
    return counts


@click.command()
@click.argument("model", required=False)
@click.option("--config", "config_file", type=_FILE, help="The configuration file.")
@click.option("--engine", type=_FILE, help="llama-server, or its folder.")
@click.option(
    "--suite",
    "suite_name",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
)
@click.option("--budget", type=click.FloatRange(min=10), help="Seconds, without the calibration.")
@click.option("--arms", callback=_names, default="", help="Some of them, with commas between.")
@click.option("--workloads", callback=_names, default="", help="Some of them, with commas between.")
@click.option("--prompts", type=_FILE, help="Your own: one a line, or JSON lines.")
@click.option("--slots", callback=_slots, help="Requests at a time, such as 1,2,4.")
@click.option("--depths", callback=_counts, help="Context depths in tokens, such as 512,4096.")
@click.option(
    "--demo",
    "pair",
    type=click.Choice(["good", "one-dropped", "poor"]),
    help="The demo's pair with this draft, without a configuration.",
)
@click.option("--fresh", is_flag=True, help="Begin anew, calibration included.")
@click.option("--html", "html_file", type=_FILE, help="Write a page that needs nothing else.")
@click.option("--png", "png_file", type=_FILE, help="Draw pictures (needs the extra bench).")
@click.option("--replay", "replay_file", type=_FILE, help="Play on a recorded cost curve instead.")
@click.option(
    "--rounds", "rounds_files", type=_FILE, multiple=True, help="Recorded rounds for --replay."
)
@click.option(
    "--draft-cost",
    type=click.FloatRange(0, 10),
    default=0.05,
    show_default=True,
    help="For --replay: a draft step in plain steps, where the file does not tell.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    *,
    model: str | None,
    config_file: Path | None,
    engine: Path | None,
    suite_name: str,
    budget: float | None,
    arms: tuple[str, ...],
    workloads: tuple[str, ...],
    prompts: Path | None,
    slots: tuple[int, ...],
    depths: tuple[int, ...] | None,
    pair: str | None,
    fresh: bool,
    html_file: Path | None,
    png_file: Path | None,
    replay_file: Path | None,
    rounds_files: tuple[Path, ...],
    draft_cost: float,
    as_json: bool,
) -> None:
    """Compare speculation settings on this machine, fairly.

    Plain decoding, the engine's default, the best static triple of a sweep, the rule of pull
    request 17034, and autospec with and without the live policy answer the same requests in
    turn. Stop the daemon first: a server at work makes the figures worthless.

    Interrupt it with Ctrl-C, and the same command goes on where it was. The report is kept in
    the cache as well. MODEL is a name from the configuration.
    """
    from autospec.daemon.one_thread import calm_arithmetic

    calm_arithmetic()

    from dataclasses import replace

    if replay_file is not None:
        _replay(replay_file, rounds_files, draft_cost, as_json=as_json)
        return
    if rounds_files:
        raise click.UsageError("--rounds needs --replay")
    if pair is not None and (model is not None or config_file is not None):
        raise click.UsageError("--demo takes neither MODEL nor --config")
    from autospec.bench import pictures
    from autospec.bench.assemble import Wishes
    from autospec.bench.suite import SUITES

    if png_file is not None:
        pictures.demand()
    suite = SUITES[suite_name]
    if budget is not None:
        suite = replace(suite, budget=budget)
    wishes = Wishes(arms, workloads, slots, depths, prompts)
    loaded, name = _configuration(config_file, model, pair)
    report = _measure(loaded, name, engine, pair, suite, wishes, fresh=fresh)
    _write(report, html_file, png_file)
    if as_json:
        click.echo(json.dumps(report, indent=2, allow_nan=False))
    else:
        from autospec.ui.bench import print_report

        print_report(report)


def _replay(curves: Path, rounds: tuple[Path, ...], draft_cost: float, *, as_json: bool) -> None:
    from autospec.bench.replay import replay_files
    from autospec.ui.replay import print_replay

    played, mixed = replay_files(curves, rounds, draft_cost=draft_cost)
    if as_json:
        document = [one.to_json() for one in played] + [one.to_json() for one in mixed]
        click.echo(json.dumps({"replayed": document}, indent=2, allow_nan=False))
    else:
        print_replay(played, mixed)


def _write(report: dict[str, Any], html_file: Path | None, png_file: Path | None) -> None:
    """The page, and the pictures numbered before the suffix."""
    from autospec.bench import pictures
    from autospec.bench.html import page
    from autospec.errors import UsageError

    if html_file is None and png_file is None:
        return
    drawn = pictures.draw(report) if pictures.available() else []
    try:
        if html_file is not None:
            html_file.write_text(page(report, drawn), encoding="utf-8")
        for number, (_, png) in enumerate(drawn if png_file is not None else (), start=1):
            assert png_file is not None
            png_file.with_name(f"{png_file.stem}-{number}{png_file.suffix}").write_bytes(png)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}") from None


def _configuration(path: Path | None, model: str | None, pair: str | None) -> tuple[Config, str]:
    from autospec.bench.assemble import name_of
    from autospec.config.load import find_config, load, parse

    if pair is None:
        loaded = load(find_config(path))
        return loaded, name_of(loaded, model)
    from autospec.demo.assets import ensure_models, show
    from autospec.demo.run import FULL, configuration

    models = ensure_models(show)
    drafts = {
        "good": models.draft,
        "one-dropped": models.draft_one_dropped,
        "poor": models.draft_three_dropped,
    }
    text = configuration(models.target, drafts[pair], FULL)
    return parse(text, path=Path("autospec.toml")), "demo"


def _measure(
    config: Config,
    name: str,
    engine: Path | None,
    pair: str | None,
    suite: Suite,
    wishes: Wishes,
    *,
    fresh: bool,
) -> dict[str, Any]:
    import asyncio
    import sys
    from datetime import UTC, datetime

    from rich.console import Console

    from autospec.bench.assemble import journal_key, order_of, subject_of, with_slots
    from autospec.bench.journal import Journal, results_path
    from autospec.bench.report import Circumstances, report_of
    from autospec.bench.runner import run
    from autospec.demo.build_engine import ensure
    from autospec.engine.find import find_engine
    from autospec.hardware.snapshot import snapshot
    from autospec.ui.progress import calibration_bar

    console = Console(stderr=True)
    wanted = engine or config.engine.path
    found = find_engine(ensure(str(wanted) if wanted else None) if pair else wanted)
    if wishes.slots:
        config = with_slots(config, name, wishes.slots)
    hardware = snapshot()
    began = datetime.now(UTC)

    async def measured() -> dict[str, Any]:
        with calibration_bar(console) as on_progress:
            subject, cached = await subject_of(
                found, config, name, hardware.key(), on_progress, anew=fresh
            )
            order = order_of(suite, wishes, subject.prepared)
            journal = Journal(journal_key(subject, order))
            if journal.records:
                console.print(f"going on after {len(journal.records)} records", highlight=False)
            done = await run(subject, order, journal, on_progress)
        circumstances = Circumstances(
            command=" ".join(["autospec", *sys.argv[1:]]),
            began=began.isoformat(timespec="seconds"),
            hardware=hardware.to_dict(),
            calibration_cached=cached,
        )
        report = report_of(subject, order, done, journal.of("row"), circumstances)
        kept = results_path(name, began.strftime("%Y%m%d-%H%M%S"))
        kept.write_text(json.dumps(report, indent=1, allow_nan=False))
        console.print(f"the report is kept in {kept}", highlight=False, soft_wrap=True)
        journal.forget()
        return report

    try:
        return asyncio.run(measured())
    except asyncio.CancelledError:
        # Nobody else cancels it: asyncio.run fails to see a Ctrl-C as one where httpx has left
        # the task's count of cancellations at another number than it found.
        raise KeyboardInterrupt from None
