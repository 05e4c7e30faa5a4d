"""A calibration that its owner gives away: costs and rounds, and nothing that tells whose.

No paths, no names of hosts, files or models, no times of day: step times, what rehearsed rounds
reported, and the kind of machine. `autospec bench --replay` plays on it, and `autospec fit`
reads its `curves`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autospec.calibration.curves import Curve, read_curves, read_text, round_of
from autospec.calibration.result import Calibration
from autospec.errors import UsageError
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Round

FORMAT = 1
_MOST_STEPS = 10_000


@dataclass(frozen=True)
class Donation:
    """What one file holds. `steps` of target and draft are None where only curves are known."""

    curves: tuple[Curve, ...]
    target: tuple[StepTime, ...] = ()
    draft: tuple[StepTime, ...] = ()
    rounds: tuple[Round, ...] = ()
    rehearsal_depth: float = 0.0


def donation_json(
    calibration: Calibration, hardware: Mapping[str, Any], *, name: str
) -> dict[str, Any]:
    """The document of `autospec calibrate --export`. `hardware` as `snapshot().to_dict()`."""
    cpu, gpus = hardware["cpu"], hardware["gpus"]
    return {
        "format": FORMAT,
        "machine": {
            "cpu": cpu["model"],
            "cores": cpu["usable"],
            "gpus": [gpu["name"] for gpu in gpus],
        },
        "engine": calibration.engine_version,
        "max_draft": calibration.max_draft,
        "unsure": calibration.unsure,
        "curves": [{"name": name, "relative_cost": relative_cost(calibration.target)}],
        "target": [asdict(step) for step in calibration.target],
        "draft": [asdict(step) for step in calibration.draft],
        "rehearsal_depth": calibration.rehearsal_depth,
        "rounds": [_told(one) for one in calibration.rounds],
    }


def relative_cost(steps: Sequence[StepTime]) -> list[float]:
    """Cost of a token in batches of 1, 2, … up to the first that is missing, at depth 0 and in
    units of plain decoding."""
    ms = {step.batch: step.ms for step in steps if step.depth == 0 and step.slots == 1}
    length = 0
    while length + 1 in ms:
        length += 1
    return [ms[batch] / batch / ms[1] for batch in range(1, length + 1)]


def read_donation(path: Path) -> Donation:
    """The curves and whatever else is in the file; hostile input, refused with its place."""
    curves = tuple(read_curves(path))
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return Donation(curves)  # a benchmark's output, which is JSON line by line
    if "format" not in document:
        return Donation(curves)
    if document["format"] != FORMAT:
        raise UsageError(f"{path} is a donation of another format: {document['format']!r:.100}")
    depth = document.get("rehearsal_depth", 0.0)
    if isinstance(depth, bool) or not isinstance(depth, int | float) or not 0 <= depth < 1e9:
        raise UsageError(f"{path}: 'rehearsal_depth' is no depth: {depth!r:.100}")
    return Donation(
        curves,
        _steps(path, document, "target"),
        _steps(path, document, "draft"),
        _rounds(path, document),
        float(depth),
    )


def _told(one: Round) -> dict[str, Any]:
    return {
        "p": list(one.p),
        "accepted": one.accepted,
        "draft_ms": one.draft_ms,
        "verify_ms": one.verify_ms,
    }


def _steps(path: Path, document: dict[str, Any], key: str) -> tuple[StepTime, ...]:
    entries = _list(path, document, key)
    try:
        return tuple(_step(entry) for entry in entries)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise UsageError(f"{path}: {key!r} holds no step times: {error}") from None


def _step(entry: Mapping[str, Any]) -> StepTime:
    whole = {key: entry[key] for key in ("batch", "depth", "repeats", "slots")}
    if not all(isinstance(value, int) and value < 1_000_000 for value in whole.values()):
        raise ValueError(f"counts are whole numbers under a million: {whole!r:.200}")
    if not isinstance(entry["shared"], bool):
        raise TypeError("'shared' is true or false")
    return StepTime(
        **whole,
        ms=float(entry["ms"]),
        spread_ms=float(entry["spread_ms"]),
        shared=entry["shared"],
    )


def _rounds(path: Path, document: dict[str, Any]) -> tuple[Round, ...]:
    entries = _list(path, document, "rounds")
    return tuple(round_of(f"{path}: round {n}", entry) for n, entry in enumerate(entries, 1))


def _list(path: Path, document: dict[str, Any], key: str) -> list[Any]:
    entries = document.get(key, [])
    if not isinstance(entries, list) or len(entries) > _MOST_STEPS:
        raise UsageError(f"{path}: {key!r} is no list of up to {_MOST_STEPS} entries")
    return entries
