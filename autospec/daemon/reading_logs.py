"""Events of the daemon and lines of its children, one after the other, also as they come."""

from __future__ import annotations

import contextlib
import heapq
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import IO, Literal, Self

from autospec.daemon.child_log import ChildLog
from autospec.daemon.events import Level, event_of
from autospec.errors import UsageError
from autospec.state.store import Store, Table
from autospec.text import printable

EVERY = 0.25
_MOST_EVENTS = 2000
_STAMP = len("2026-11-30 12:00:00,000")


@dataclass(frozen=True)
class Line:
    """`at` in seconds since the epoch; `model` is None for the daemon itself."""

    at: float
    source: Literal["autospec", "llama-server"]
    model: str | None
    level: Level
    text: str


class Logs:
    """Of all models, or of the one that is called `model`: UsageError where none is."""

    def __init__(self, store: Store, model: str | None = None) -> None:
        self._store = store
        self._model = model
        self._seen = 0
        self._children: dict[str, _ChildLines] = {}
        if model is not None and model not in (known := self._known()):
            names = ", ".join(sorted(known)) or "none yet"
            raise UsageError(f"no model {model!r} has run here", hint=f"those that have: {names}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.close()

    def last(self, lines: int) -> list[Line]:
        """The last `lines`, the oldest first."""
        self._discover()
        tails = [child.tail(lines) for child in self._children.values()]
        merged = heapq.merge(*tails, self._events(), key=attrgetter("at"))
        return list(deque(merged, maxlen=lines))

    def follow(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[Line]:
        """What comes after `last`, for ever."""
        while True:
            self._discover()
            news = chain(self._events(), *(child.news() for child in self._children.values()))
            yield from sorted(news, key=attrgetter("at"))
            sleep(EVERY)

    def _known(self) -> set[str]:
        events = self._store.newest(Table.EVENTS, most=_MOST_EVENTS)
        return {kept.key for kept in events if kept.key} | set(_files())

    def _discover(self) -> None:
        for name, path in _files().items():
            if name not in self._children and self._model in (None, name):
                self._children[name] = _ChildLines(name, path)

    def _events(self) -> Iterator[Line]:
        """Those that were written since the last call; a file made anew counts from the start."""
        kept = self._store.newest(Table.EVENTS, self._model, most=_MOST_EVENTS)
        last = kept[0].id if kept else self._seen
        seen, self._seen = (0 if last < self._seen else self._seen), last
        for one in reversed(kept):
            if one.id > seen and (event := event_of(one)) is not None:
                yield Line(event.at, "autospec", event.model, event.level, event.text)


@dataclass
class _ChildLines:
    """One child's log, which is renamed to `.1` when it is full, and begun anew."""

    name: str
    path: Path
    _file: IO[bytes] | None = None
    _rest: bytes = b""
    _at: float = field(default_factory=time.time)

    def tail(self, lines: int) -> list[Line]:
        kept: deque[Line] = deque(maxlen=lines)
        with contextlib.suppress(OSError), self._full().open("rb") as full:
            kept.extend(self._lines(full.read()))
        kept.extend(self.news())
        return list(kept)

    def news(self) -> Iterator[Line]:
        if self._file is None and (opened := _opened(self.path)) is not None:
            self._file = opened
        if self._file is None:
            return
        # Looked at before reading: what is written meanwhile is still in the file that is open.
        turned, before = not _same(self._file, self.path), self._file
        if os.fstat(before.fileno()).st_size < before.tell():
            before.seek(0)
        yield from self._lines(before.read())
        if turned:
            full = _opened(self._full())
            if full is not None:
                if not _same(before, self._full()):
                    yield from self._lines(full.read())
                full.close()
            self.close()
            yield from self.news()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _full(self) -> Path:
        return self.path.with_name(f"{self.path.name}.1")

    def _lines(self, data: bytes) -> Iterator[Line]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for raw in whole:
            text = raw.decode(errors="replace")
            with contextlib.suppress(ValueError):
                stamp = text[:_STAMP].replace(",", ".")
                self._at = datetime.fromisoformat(stamp).astimezone().timestamp()
                text = text[_STAMP + 1 :]
            yield Line(self._at, "llama-server", self.name, "info", printable(text))


def _files() -> dict[str, Path]:
    return {path.stem: path for path in sorted(ChildLog.folder().glob("*.log"))}


def _opened(path: Path) -> IO[bytes] | None:
    try:
        return path.open("rb") if path.is_file() else None
    except OSError:
        return None


def _same(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
