"""Changes to a configuration file that keep its comments and its order."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from autospec.config.load import parse, read_text, read_toml
from autospec.config.names import PINS
from autospec.config.schema import Config
from autospec.errors import ConfigError

Pin = str | int | float | Sequence[str] | Sequence[float]


def pin(path: Path, model: str, pins: Mapping[str, Pin | None]) -> Config:
    """Pin values of `model` in the file `path`; None takes a pin out.

    The file is replaced in one step, or, where the result would not load, left as it is.
    Raises ConfigFaults for values that do not fit, ConfigError for an unknown model or pin.
    """
    text = changed = read_text(path)
    for key, value in pins.items():
        changed = pinned(changed, model, key, value, path=path)
    config = parse(changed, path=path)
    if changed != text:
        try:
            _replace(path.resolve(), changed)
        except OSError as error:
            raise ConfigError(
                f"cannot write {path}: {error.strerror}", hint="run this as the file's owner"
            ) from None
    return config


def pinned(text: str, model: str, key: str, value: Pin | None, *, path: Path) -> str:
    """`text` with the pin set or taken out; `path` is what an error names."""
    if key not in PINS:
        raise ConfigError(f"{key} is no pin", hint=f"one of {', '.join(PINS)}")
    data = read_toml(text, path)
    models = data.get("models")
    if not isinstance(models, dict) or not isinstance(models.get(model), dict):
        known = ", ".join(models) if isinstance(models, dict) and models else "none"
        raise ConfigError(f"{path} has no model {model}", hint=f"models there: {known}")
    if value is None:
        if key not in models[model]:
            return text
        del models[model][key]
    else:
        models[model][key] = list(value) if isinstance(value, tuple | list) else value
    try:
        document = tomlkit.parse(text)
        table: Any = document["models"][model]
        if value is None:
            del table[key]
        else:
            table[key] = models[model][key]
        changed = document.as_string()
    except TOMLKitError as error:
        raise ConfigError(f"{path} cannot be edited: {error}", hint="edit it by hand") from None
    if read_toml(changed, path) != data:
        raise ConfigError(
            f"{path} cannot be edited without changing more than models.{model}.{key}",
            hint="edit it by hand",
        )
    return changed


def _replace(path: Path, text: str) -> None:
    """Write `text` beside `path` and move it there, with the permissions of the old file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    beside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
