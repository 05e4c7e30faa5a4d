"""The names in a configuration file, for a shell that completes them: quick, and never an error."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from autospec import paths

ENVIRONMENT = "AUTOSPEC_CONFIG"
MOST_BYTES = 1 << 20
PINS = ("type", "n_max", "n_min", "p_min", "thresholds")


def model_names(explicit: Path | None = None) -> list[str]:
    """The models of the file that a command would read; none of one that cannot be read."""
    named = explicit or os.environ.get(ENVIRONMENT)
    files = [Path(named).expanduser()] if named else paths.config_files()
    for file in files:
        try:
            if not file.is_file():
                continue
            with file.open("rb") as opened:
                models = tomllib.loads(opened.read(MOST_BYTES).decode("utf-8-sig")).get("models")
        except (OSError, ValueError, RecursionError):
            return []
        return [name for name in models if name.isprintable()] if isinstance(models, dict) else []
    return []
