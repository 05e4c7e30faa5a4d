"""What is wrong in a configuration file, and where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from autospec.errors import ConfigError

_SHOWN = 60


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
        where = f"{self.path}:{self.line}: " + (f"{self.key}: " if self.key else "")
        return where + self.message + (f" ({'; '.join(aside)})" if aside else "")

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
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


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
