"""Writes for a loop that must not wait: one thread, a queue with an end."""

from __future__ import annotations

import threading
from collections import deque

from autospec.state.store import Row, Store

_MOST = 10_000
_BATCH = 500
_AGAIN = (1.0, 60.0)


class Recorder:
    """`put` returns at once. What cannot be written is tried again, while there is room for it.

    When more than `most` rows wait, the oldest are dropped; `dropped` counts them.
    """

    def __init__(self, store: Store, *, most: int = _MOST) -> None:
        self.store = store
        self.dropped = 0
        self._waiting: deque[Row] = deque()
        self._most = most
        self._changed = threading.Condition()
        self._busy = False
        self._closing = False
        self._thread = threading.Thread(target=self._write, name="state", daemon=True)
        self._thread.start()

    def put(self, *rows: Row) -> None:
        with self._changed:
            self._waiting.extend(rows)
            self._trim()
            self._changed.notify_all()

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything so far is written; False when it is not in `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._waiting or self._busy), timeout)

    def close(self, timeout: float = 2.0) -> bool:
        """Write what waits and end. A disk that hangs is waited for no longer than `timeout`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _trim(self) -> None:
        while len(self._waiting) > self._most:
            self._waiting.popleft()
            self.dropped += 1

    def _write(self) -> None:
        pause = _AGAIN[0]
        while batch := self._next():
            done = self.store.put(*batch)
            with self._changed:
                self._busy = False
                if not done:
                    self._waiting.extendleft(reversed(batch))
                    self._trim()
                self._changed.notify_all()
                if done:
                    pause = _AGAIN[0]
                elif self._changed.wait_for(lambda: self._closing, pause):
                    break
                else:
                    pause = min(2 * pause, _AGAIN[1])
        self.store.close()

    def _next(self) -> list[Row]:
        """The rows to write next; none when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            self._busy = bool(batch)
            return batch
