"""`autospec import`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("import", short_help="Turn a llama-server command line into a configuration.")
@click.argument("words", nargs=-1, required=True, metavar="'llama-server …'")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file, which must not exist yet; printed without it.",
)
def command(words: tuple[str, ...], output: Path | None) -> None:
    """Turn the llama-server command line that you use today into a configuration.

    Give it as one quoted text, or its words after a `--`. Nothing is started.
    """
    from autospec.config.importing import import_command

    document, remarks = import_command(words, Path.cwd(), output)
    if output is None:
        click.echo(document, nl=False)
    for remark in remarks:
        click.echo(f"note: {remark}", err=True)
    if output is not None:
        click.echo(f"wrote {output}; autospec serve --config {output} runs it", err=True)
