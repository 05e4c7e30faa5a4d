"""`autospec serve`: the daemon in the foreground."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Without a file: autospec serve -- -m target.gguf -md draft.gguf -c 8192",
)
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--engine", type=click.Path(path_type=Path), help="llama-server, or its folder.")
@click.option("--no-calibrate", is_flag=True, help="Do not measure now; use what is known.")
@click.option(
    "--log-format",
    type=click.Choice(["human", "journal", "json"]),
    help="How the log is written; by default by where it goes.",
)
@click.option("--log-children", is_flag=True, help="What llama-server prints comes too.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    config: Path | None,
    engine: Path | None,
    no_calibrate: bool,
    log_format: str | None,
    log_children: bool,
    arguments: tuple[str, ...],
) -> None:
    """Run llama-server, tuned and watched.

    ARGUMENTS, after --, are llama-server's own: they replace the configuration file.
    """
    from autospec.daemon.one_thread import calm_arithmetic

    calm_arithmetic()

    import asyncio

    from rich.console import Console

    from autospec.config.from_command import config_of_arguments
    from autospec.config.load import find_config, load
    from autospec.daemon.app import Daemon, Options
    from autospec.ui import logs
    from autospec.ui.progress import calibration_bar

    form = logs.Form(log_format) if log_format else logs.natural_form()
    logs.to_stderr(form, children=log_children)
    if arguments:
        loaded, origin, again = config_of_arguments(arguments), "command line", None
    else:
        path = find_config(config)
        loaded, origin, again = load(path), str(path), lambda: load(path)
    human = form is logs.Form.HUMAN
    console = Console(stderr=True, force_terminal=None if human else False)
    with calibration_bar(console, lines=human) as on_progress:
        options = Options(engine, not no_calibrate, on_progress, again)
        with logs.errors_as(form):
            asyncio.run(Daemon(loaded, origin, options).run())
