"""What was learned from real traffic, kept across restarts, one small file a calibration."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from autospec import paths
from autospec.tuning.observations import Counters

_FORMAT = 1
_LARGEST = 10**15


@dataclass(frozen=True)
class Learned:
    """Counters under one setting, and where they were taken: mean depth (tokens), busy slots."""

    n_max: int
    n_min: int
    p_min: float
    counters: Counters
    depth: float
    busy: float


def load(key: str) -> Learned | None:
    """What was kept for the calibration `key`; a file that cannot be read is set aside."""
    path = _path(key)
    try:
        fields = json.loads(path.read_text())
        if fields.pop("format") != _FORMAT:
            raise ValueError("another format")
        counters = fields.pop("counters")
        counters["per_position"] = tuple(counters["per_position"])
        return _checked(Learned(counters=Counters(**counters), **fields))
    except OSError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".corrupt"))
        return None


def _checked(learned: Learned) -> Learned:
    """Refuse with ValueError what no counter and no setting can be; the file is anybody's."""
    seen = learned.counters
    counts = [seen.drafts, seen.drafted, seen.accepted, seen.predicted, *seen.per_position]
    for count in (learned.n_max, learned.n_min, *counts):
        if type(count) is not int or not 0 <= count <= _LARGEST:
            raise ValueError(f"not a count: {count!r}")
    for number in (learned.p_min, learned.depth, learned.busy, seen.predicted_seconds):
        if type(number) not in (int, float) or not 0 <= number <= _LARGEST:
            raise ValueError(f"not a number that can be: {number!r}")
    return learned


def save(key: str, learned: Learned) -> None:
    """Keep it; the file appears whole or not at all. OSError where there is no room."""
    path = _path(key)
    folder = paths.private(path.parent)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(json.dumps({"format": _FORMAT, **asdict(learned)}, allow_nan=False))
    Path(file.name).replace(path)


def _path(key: str) -> Path:
    return paths.state() / "learned" / f"{key}.json"
