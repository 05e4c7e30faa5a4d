"""What happened, newest last: shown by `status`, written to the log."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

_log = logging.getLogger("autospec")
_KEPT = 200
_LONGEST = 600

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Event:
    """`at` in seconds since the epoch; `model` is None for what concerns the daemon itself."""

    at: float
    level: Level
    model: str | None
    text: str


@dataclass
class Events:
    """The last `_KEPT` of them. Texts may quote a child: they are cut, and made printable."""

    kept: deque[Event] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def add(self, text: str, *, model: str | None = None, level: Level = "info") -> None:
        text = "".join(char if char.isprintable() else " " for char in text[:_LONGEST])
        self.kept.append(Event(time.time(), level, model, text))
        prefix = f"{model}: " if model else ""
        _log.log(logging.getLevelNamesMapping()[level.upper()], "%s%s", prefix, text)
