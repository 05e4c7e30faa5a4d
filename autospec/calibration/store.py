"""Finished calibrations, found again by what they depend on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from autospec.calibration.result import FORMAT, Calibration
from autospec.engine.launch import Launch
from autospec.errors import CalibrationError
from autospec.state.store import Kept, Row, Store, Table

_HEAD = 1 << 20


def model_identity(path: Path) -> str:
    """A digest of a model file's size, its first and its last MiB: header and last tensors."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest.update(str(size).encode())
        file.seek(0)
        digest.update(file.read(_HEAD))
        file.seek(max(0, size - _HEAD))
        digest.update(file.read(_HEAD))
    return digest.hexdigest()


def key_of(
    launch: Launch, *, hardware: str, engine: str, arguments: Sequence[str], grid: object
) -> str:
    """The key of a calibration: hardware, engine, model files, flags and what was measured.

    `arguments` are the benchmark's placement flags, `grid` whatever JSON can hold that says
    which batches and depths were asked for. A file moved to another folder keeps its key.
    """
    models = [
        model_identity(path) if path else repository
        for path, repository in ((launch.model, launch.hf), (launch.draft, launch.draft_hf))
    ]
    files = {str(path) for path in (launch.model, launch.draft) if path}
    flags = [argument for argument in arguments if argument not in files]
    what = [FORMAT, hardware, engine, models, flags, launch.slots, launch.context, grid]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


def load(store: Store, key: str) -> Calibration | None:
    """The calibration kept under `key`; one that cannot be understood counts as none."""
    for kept in store.newest(Table.CALIBRATIONS, key, most=1):
        return _understood(kept)
    return None


def save(store: Store, calibration: Calibration) -> None:
    store.put(Row(Table.CALIBRATIONS, calibration.key, calibration.to_json()))


def any_of(store: Store, model: str) -> bool:
    """Whether any calibration of a model of this name is kept."""
    found = map(_understood, store.newest(Table.CALIBRATIONS))
    return any(one is not None and one.model == model for one in found)


def _understood(kept: Kept) -> Calibration | None:
    try:
        return Calibration.from_json(kept.document)
    except CalibrationError:
        return None
