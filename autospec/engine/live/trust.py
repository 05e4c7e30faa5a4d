"""What earlier runs showed of an engine under the library: proven, or deadly.

Kept in the state folder by the engine's identity and the library's name, so that another build of
either starts afresh. A file that cannot be read counts as empty; one that cannot be written costs
only the memory.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autospec import paths

CRASHES = 2
WITHIN_SECONDS = 600.0
"""So many deaths by a signal within so long under the library put it aside for that engine."""

_FILE = "live.json"
_MAX_BYTES = 1 << 20
_MAX_ENGINES = 100


@dataclass(frozen=True)
class Trust:
    """`proven`: a handshake succeeded. `crashes` are when (seconds since 1970) children died."""

    proven: bool = False
    crashes: tuple[float, ...] = ()

    def refusal(self) -> str | None:
        """Why the library must not be used with this engine any more; None when it may."""
        latest = self.crashes[-CRASHES:]
        if len(latest) < CRASHES or latest[-1] - latest[0] > WITHIN_SECONDS:
            return None
        return (
            f"llama-server crashed {CRASHES} times within {WITHIN_SECONDS / 60:.0f} minutes under "
            f"the live policy (remove {_store()} to try again)"
        )


def recall(engine: str, library: Path) -> Trust:
    """What is known of the engine with that identity under `library`."""
    return _read(_load().get(_key(engine, library)))


def remember_proof(engine: str, library: Path) -> None:
    _save(engine, library, replace(recall(engine, library), proven=True))


def remember_crash(engine: str, library: Path, when: float) -> None:
    """Note that a child with the library in it died at `when` by a signal that nobody sent."""
    known = recall(engine, library)
    _save(engine, library, replace(known, crashes=(*known.crashes, when)[-CRASHES:]))


def _key(engine: str, library: Path) -> str:
    return f"{engine} {library.stem}"


def _store() -> Path:
    return paths.state() / _FILE


def _load() -> dict[str, Any]:
    store = _store()
    try:
        if store.stat().st_size > _MAX_BYTES:
            return {}
        known = json.loads(store.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _read(entry: object) -> Trust:
    if not isinstance(entry, dict):
        return Trust()
    crashes = entry.get("crashes")
    times = [
        when
        for when in (crashes if isinstance(crashes, list) else [])
        if isinstance(when, float) and math.isfinite(when)
    ]
    return Trust(proven=entry.get("proven") is True, crashes=tuple(sorted(times)))


def _save(engine: str, library: Path, trust: Trust) -> None:
    known = _load()
    known.pop(_key(engine, library), None)
    known[_key(engine, library)] = {"proven": trust.proven, "crashes": [*map(float, trust.crashes)]}
    recent = dict(list(known.items())[-_MAX_ENGINES:])
    with contextlib.suppress(OSError):
        folder = paths.private(_store().parent)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(recent, file)
        Path(file.name).replace(_store())
