"""What was learned from real traffic, kept across restarts of the daemon.

Keys are those of calibrations: engine, hardware, model files and flags.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from autospec.state.recorder import Recorder
from autospec.state.store import Row, Store, Table
from autospec.tuning.observations import Counters

_FORMAT = 1
_LARGEST = 10**15

T = TypeVar("T")


@dataclass(frozen=True)
class Learned:
    """Counters under one setting, and where they were taken: mean depth (tokens), busy slots."""

    n_max: int
    n_min: int
    p_min: float
    counters: Counters
    depth: float
    busy: float


@dataclass(frozen=True)
class Tried:
    """A setting that was measured, at some depth (tokens) and load (busy slots): the tokens/s it
    gave, and those of plain decoding."""

    n_max: int
    n_min: int
    p_min: float
    rate: float
    plain: float
    depth: float
    busy: float


class Memory:
    """Reads when asked, newest first; writes without waiting. What cannot be understood is not
    there."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @property
    def store(self) -> Store:
        return self._recorder.store

    def epochs(self, key: str, most: int = 24) -> list[Learned]:
        """What each span of traffic under one setting taught."""
        return self._all(Table.EPOCHS, key, most, _learned)

    def learned(self, key: str) -> Learned | None:
        """The last of them."""
        return next(iter(self.epochs(key, most=1)), None)

    def learn(self, key: str, epoch: str, learned: Learned) -> None:
        """Keep what `epoch` has taught so far, in place of what was kept of it before."""
        self._put(Table.EPOCHS, key, asdict(learned), epoch)

    def trials(self, key: str, most: int = 50) -> list[Tried]:
        return self._all(Table.TRIALS, key, most, _tried)

    def tried(self, key: str, trial: Tried) -> None:
        """Keep it, in place of an earlier trial of the same setting at about the same place."""
        setting = f"{trial.n_max}/{trial.n_min}/{trial.p_min:g}"
        place = f"{round(trial.busy)}/{int(trial.depth).bit_length()}"
        self._put(Table.TRIALS, key, asdict(trial), f"{setting} at {place}")

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


def _learned(fields: dict[str, Any]) -> Learned:
    counters = fields.pop("counters")
    counters["per_position"] = tuple(counters["per_position"])
    learned = Learned(counters=Counters(**counters), **fields)
    seen = learned.counters
    counts = (seen.drafts, seen.drafted, seen.accepted, seen.predicted, *seen.per_position)
    _counts(learned.n_max, learned.n_min, *counts)
    _amounts(learned.p_min, learned.depth, learned.busy, seen.predicted_seconds)
    return learned


def _tried(fields: dict[str, Any]) -> Tried:
    tried = Tried(**fields)
    _counts(tried.n_max, tried.n_min)
    _amounts(tried.p_min, tried.rate, tried.plain, tried.depth, tried.busy)
    return tried


def _counts(*values: object) -> None:
    """ValueError for what no counter and no setting can be; the file is anybody's."""
    for value in values:
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise ValueError(f"not a count: {value!r}")


def _amounts(*values: float) -> None:
    for value in values:
        if type(value) not in (int, float) or not 0 <= value <= _LARGEST:
            raise ValueError(f"not a number that can be: {value!r}")
