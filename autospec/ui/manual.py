"""The commands as a manual page and as Markdown, both from what `--help` says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from autospec import __version__

_WIDTH = 78
_FILES = (
    ("~/.config/autospec/autospec.toml, /etc/autospec/autospec.toml", "The configuration."),
    ("~/.local/state/autospec", "What was measured and learned, events, logs of the children."),
    ("~/.cache/autospec", "The demo's models and engine."),
)
_VARIABLES = (
    ("AUTOSPEC_CONFIG", "The configuration file, in place of those above."),
    ("AUTOSPEC_ENGINE", "llama-server, or its folder."),
    ("NO_COLOR", "Set, it keeps colours away."),
)


def manual(group: click.Group, name: str) -> str:
    """The page in section 1, in the macros of man(7)."""
    lines = [f'.TH "{name.upper()}" "1" "" "{name} {__version__}" "User Commands"']
    lines += [".SH NAME", f"{name} \\- {_roff(_first_sentence(group).removesuffix('.').lower())}"]
    lines += [".SH SYNOPSIS", f".B {name}", "[OPTIONS] COMMAND [ARGS]..."]
    lines += [".SH DESCRIPTION", _roff(_paragraphs(group)[0]), ".SH OPTIONS"]
    lines += _options(click.Context(group, info_name=name))
    lines.append(".SH COMMANDS")
    for context in _commands(click.Context(group, info_name=name)):
        command = context.command
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f'.SS "{_roff(context.command_path)} {_roff(usage)}"']
        lines += [line for text in _paragraphs(command) for line in (".PP", _roff(text))]
        lines += _options(context)
    lines.append(".SH EXIT STATUS")
    lines.append(_roff((group.epilog or "").removeprefix("Exit codes: ")))
    for title, entries in (("FILES", _FILES), ("ENVIRONMENT", _VARIABLES)):
        lines.append(f".SH {title}")
        lines += [line for term, text in entries for line in _term(term, text)]
    return "\n".join(lines) + "\n"


def reference(group: click.Group, name: str) -> str:
    """The help of every command as Markdown, as the README shows it."""
    blocks = []
    for context in _commands(click.Context(group, info_name=name)):
        context.terminal_width = _WIDTH
        text = context.command.get_help(context)
        blocks.append(f"```text\n{text.rstrip()}\n```\n")
    return "\n".join(blocks)


def _commands(context: click.Context) -> Iterator[click.Context]:
    """A context for every command below `context` that does something itself."""
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        settings = command.context_settings
        inner = command.context_class(command, info_name=name, parent=context, **settings)
        if isinstance(command, click.Group):
            yield from _commands(inner)
        else:
            yield inner


def _paragraphs(command: click.Command) -> list[str]:
    parts = [*re.split(r"\n\s*\n", (command.help or "").strip()), command.epilog or ""]
    return [" ".join(part.split()) for part in parts if part.strip()]


def _first_sentence(command: click.Command) -> str:
    return _paragraphs(command)[0].partition(". ")[0]


def _options(context: click.Context) -> list[str]:
    records = [param.get_help_record(context) for param in context.command.get_params(context)]
    return [line for record in records if record and record[1] for line in _term(*record)]


def _term(term: str, text: str) -> list[str]:
    return [".TP", f".B {_roff(term)}", _roff(text)]


def _roff(text: str) -> str:
    """`text` with nothing that roff would act on."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
