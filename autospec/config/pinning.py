"""What `autospec pin` and `autospec unpin` do: from words to a changed file and what changed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autospec.config.edit import Pin, pin
from autospec.config.faults import shown
from autospec.config.load import read_text, read_toml
from autospec.config.names import PINS
from autospec.errors import UsageError


@dataclass(frozen=True)
class Change:
    """A pin of one model before and after; None: not pinned."""

    key: str
    before: Pin | None
    after: Pin | None

    def __str__(self) -> str:
        before, after = ("auto" if one is None else shown(one) for one in (self.before, self.after))
        return f"{self.key} = {after}, " + ("as before" if before == after else f"was {before}")


@dataclass(frozen=True)
class Pinned:
    path: Path
    model: str
    changes: tuple[Change, ...]

    @property
    def changed(self) -> bool:
        return any(change.before != change.after for change in self.changes)

    def as_json(self) -> dict[str, Any]:
        return {
            "file": str(self.path),
            "model": self.model,
            "changes": [vars(change) for change in self.changes],
        }


def pin_words(path: Path, model: str, words: Sequence[str]) -> Pinned:
    """Pin what `words` such as "n_max=6" say. UsageError for a word that says nothing."""
    wanted: dict[str, Pin | None] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not text.strip():
            raise UsageError(f"{word!r} pins nothing", hint="write it as in n_max=6")
        wanted[key.strip()] = _value(text.strip())
    return _change(path, model, wanted)


def unpin(path: Path, model: str, keys: Sequence[str]) -> Pinned:
    """Take out the pins `keys`, or every one."""
    return _change(path, model, dict.fromkeys(keys or PINS))


def _change(path: Path, model: str, wanted: Mapping[str, Pin | None]) -> Pinned:
    models = read_toml(read_text(path), path).get("models")
    table = models.get(model) if isinstance(models, dict) else None
    before = table if isinstance(table, dict) else {}
    pin(path, model, wanted)
    changes = (Change(key, before.get(key), value) for key, value in wanted.items())
    pins = tuple(one for one in changes if (one.before, one.after) != (None, None))
    return Pinned(path, model, pins)


def _value(text: str) -> Pin:
    """`text` as TOML would have it; without quotes a word is text, and commas make a list."""
    for written in (text, f"[{text}]") if "," in text else (text,):
        try:
            read = tomllib.loads(f"value = {written}")
        except (ValueError, RecursionError):
            continue
        if list(read) == ["value"]:
            value: Pin = read["value"]
            return value
    return text
