"""What was learned from real traffic, kept across restarts of the daemon.

Keys are those of calibrations (engine, hardware, model files and flags), or of models alone.
Documents are plain data; those who read them check them, since the file is anybody's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from autospec.state.recorder import Recorder
from autospec.state.store import Row, Store, Table

_FORMAT = 1

T = TypeVar("T")


class Memory:
    """Reads when asked, newest first; writes without waiting. What cannot be understood is not
    there."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @property
    def store(self) -> Store:
        return self._recorder.store

    def learned(self, key: str) -> dict[str, Any] | None:
        """What traffic has taught, as `learn` was given it last."""
        return next(iter(self._all(Table.EPOCHS, key, 1, dict)), None)

    def learn(self, key: str, fields: Mapping[str, Any]) -> None:
        self._put(Table.EPOCHS, key, fields, "learned")

    def failed(self, key: str) -> dict[str, Any] | None:
        """Settings that were slower than plain decoding, as `fail` was given them last."""
        return next(iter(self._all(Table.TRIALS, key, 1, dict)), None)

    def fail(self, key: str, fields: Mapping[str, Any]) -> None:
        self._put(Table.TRIALS, key, fields, "failed")

    def degradations(self, key: str) -> list[str]:
        """The steps down the ladder that were tried for `key`."""
        return self._all(Table.DEGRADATIONS, key, 20, lambda fields: str(fields["step"]))

    def degraded(self, key: str, step: str) -> None:
        self._put(Table.DEGRADATIONS, key, {"step": step}, step)

    def decisions(self, model: str, most: int = 10) -> list[dict[str, Any]]:
        return self._all(Table.DECISIONS, model, most, dict)

    def decided(self, model: str, decision: Mapping[str, Any]) -> None:
        """Keep a decision about `model`: plain data, whatever its arithmetic needs."""
        self._put(Table.DECISIONS, model, decision)

    def _put(
        self, table: Table, key: str, fields: Mapping[str, Any], name: str | None = None
    ) -> None:
        document = json.dumps({"format": _FORMAT, **fields}, allow_nan=False)
        self._recorder.put(Row(table, key, document, name))

    def _all(
        self, table: Table, key: str, most: int, read: Callable[[dict[str, Any]], T]
    ) -> list[T]:
        found = []
        for kept in self.store.newest(table, key, most):
            try:
                fields = json.loads(kept.document)
                if fields.pop("format") == _FORMAT:
                    found.append(read(fields))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue
        return found
