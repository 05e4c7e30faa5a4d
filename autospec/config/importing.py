"""What `autospec import` does: from what was typed to a file and remarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autospec.config.command_line import split_command
from autospec.config.faults import ConfigFaults
from autospec.config.from_command import config_from_command
from autospec.config.load import parse
from autospec.errors import ConfigError


def import_command(
    words: Sequence[str], cwd: Path, output: Path | None
) -> tuple[str, tuple[str, ...]]:
    """The configuration for a command line, and what its user should know about it.

    One word alone is a whole command line, split as a shell would. The document is written to
    `output` unless there is such a file already. What is still at fault in it, such as a
    model that lies on another machine, is among the remarks.
    """
    left_out: list[str] = []
    if len(words) == 1:
        words, left_out = split_command(words[0])
    document, notes = config_from_command(words, cwd)
    path = output or cwd / "autospec.toml"
    if output is not None:
        _write_new(output, document)
    try:
        parse(document, path=path)
    except ConfigFaults as error:
        return document, (*left_out, *notes, *map(str, error.faults))
    return document, (*left_out, *notes)


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists", hint="name another file, or move it away") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write {path}: {error}", hint="name another file") from None
