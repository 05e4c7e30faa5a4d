"""The configuration that documents every option, written from the schema."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

from autospec.config.json_schema import Schema, annotated, fragment, words

MODEL = "chat"
_SET = frozenset({"hf"})
"""What the example's model must set to be one."""

_WIDTH = 94
_HEADER = """\
#:schema ./autospec.schema.json

# Every option of autospec, with its default. Options are switched off by a # right before
# their name; take it away to set one. Only a model is needed: all else is found or measured.

"""


def example() -> str:
    """The text of configs/autospec.example.toml."""
    tables = []
    for name, section in annotated()["properties"].items():
        title = f"{name}.{MODEL}" if name == "models" else name
        shape = fragment(("models", MODEL)) if name == "models" else section
        tables.append("\n".join(_table(title, shape)))
    return _HEADER + "\n\n".join(tables)


def _table(title: str, section: Schema) -> Iterator[str]:
    yield f"# {section['description']}"
    yield f"[{title}]"
    for key, option in section["properties"].items():
        example = _toml(option["examples"][0]) if "examples" in option else ""
        takes = f"Value: {words(option)}"
        if "default" not in option:
            takes += "; unset by default"
        elif example:
            takes += f", such as {example}"
        yield ""
        for sentence in (option["description"], takes):
            yield from textwrap.wrap(
                sentence,
                _WIDTH,
                initial_indent="# ",
                subsequent_indent="# ",
                break_on_hyphens=False,
            )
        value = _toml(option["default"]) if "default" in option else example
        yield f"{'' if key in _SET else '#'}{key} = {value}"
    yield ""


def _toml(value: object) -> str:
    """A value on one line; JSON's notation is TOML's for all but tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)
