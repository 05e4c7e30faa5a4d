"""Finished calibrations, one file each, found again by what they depend on."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autospec import paths
from autospec.calibration.result import FORMAT, Calibration
from autospec.engine.launch import Launch
from autospec.errors import CalibrationError

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


def load(key: str) -> Calibration | None:
    """The calibration kept under `key`; a file that cannot be read is set aside."""
    path = _path(key)
    try:
        return Calibration.from_json(path.read_text())
    except FileNotFoundError:
        return None
    except (CalibrationError, UnicodeDecodeError):
        path.replace(path.with_suffix(".corrupt"))
        return None


def save(calibration: Calibration) -> Path:
    """Keep it; the file appears whole or not at all."""
    path = _path(calibration.key)
    folder = paths.private(path.parent)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(calibration.to_json())
    Path(file.name).replace(path)
    return path


def _path(key: str) -> Path:
    return paths.cache() / "calibrations" / f"{key}.json"
