"""What is wrong in a configuration file, and where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from autospec.errors import ConfigError
from autospec.text import printable

_SHOWN = 60
_LONGEST_KEY = 200
_LONGEST_MESSAGE = 1000


@dataclass(frozen=True, order=True)
class Fault:
    """One fault at `path:line`; `key` is dotted, as in `models.chat.n_max`.

    `expected` says what would be right, `nearest` the valid key that was probably meant.
    """

    path: Path
    line: int
    key: str
    message: str
    expected: str | None = None
    nearest: str | None = None

    def __str__(self) -> str:
        aside = [f"expected {self.expected}"] if self.expected else []
        if self.nearest:
            aside.append(f"did you mean {self.nearest}?")
        key = f"{_cut(self.key, _LONGEST_KEY)}: " if self.key else ""
        said = _cut(self.message, _LONGEST_MESSAGE)
        where = f"{self.path}:{self.line}: {key}"
        return printable(where + said + (f" ({'; '.join(aside)})" if aside else ""))

    def as_json(self) -> dict[str, str | int | None]:
        return {
            "file": str(self.path),
            "line": self.line,
            "key": self.key,
            "message": self.message,
            "expected": self.expected,
            "nearest": self.nearest,
        }


class ConfigFaults(ConfigError):
    """Every fault of one file, in the order of its lines."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(
            "\n".join([f"{count} in the configuration", *(f"  {fault}" for fault in faults)]),
            hint="autospec schema --example shows every option with its default",
        )
        self.faults = faults


def shown(value: object) -> str:
    """`value` as it would stand in the file, on one line and cut to a readable length."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = " ".join(str(value).split())
    return _cut(text, _SHOWN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def kind(value: object) -> str:
    """What sort of TOML value this is, in words."""
    match value:
        case bool():
            return "a boolean"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or time"
