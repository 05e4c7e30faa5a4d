"""What happened, newest last: shown by `status` and `logs`, written to the log, kept."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

from autospec.state.recorder import Recorder
from autospec.state.store import Kept, Row, Store, Table

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
    """The last `_KEPT` of this life, and `earlier` ones of lives before.

    Texts may quote a child: they are cut, and made printable. Any thread may add.
    """

    kept: deque[Event] = field(default_factory=lambda: deque(maxlen=_KEPT))
    earlier: tuple[Event, ...] = ()
    _recorder: Recorder | None = None

    def keep_in(self, recorder: Recorder) -> None:
        """From now on keep all of this life in the state file too, which has the `earlier`."""
        self.earlier = tuple(recorded(recorder.store, most=_KEPT))
        recorder.put(*map(_row, list(self.kept)))
        self._recorder = recorder

    def add(self, text: str, *, model: str | None = None, level: Level = "info") -> None:
        event = Event(time.time(), level, model, _printable(text))
        self.kept.append(event)
        if self._recorder is not None:
            self._recorder.put(_row(event))
        prefix = f"{model}: " if model else ""
        number = logging.getLevelNamesMapping()[level.upper()]
        fields = {"model": model, "said": event.text}
        _log.log(number, "%s%s", prefix, event.text, extra=fields)


def recorded(store: Store, model: str | None = None, most: int = 2000) -> list[Event]:
    """The last events in the state file, of one model or of all, newest last."""
    rows = store.newest(Table.EVENTS, model, most)
    return [event for event in map(event_of, reversed(rows)) if event is not None]


def _row(event: Event) -> Row:
    return Row(Table.EVENTS, event.model or "", json.dumps(asdict(event)), at=event.at)


def event_of(kept: Kept) -> Event | None:
    """The event in a row of the state file; None where there is none that makes sense."""
    try:
        fields = json.loads(kept.document)
        level, text = fields["level"], _printable(fields["text"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return Event(kept.at, level, kept.key or None, text) if level in get_args(Level) else None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:_LONGEST])
