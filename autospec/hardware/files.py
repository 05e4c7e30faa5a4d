"""Small files of the kernel: their text or None, never an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LIMIT = 1 << 22


def text(path: Path) -> str | None:
    """Return what `path` says, or None where it is missing, unreadable or no text."""
    try:
        with path.open("rb") as file:
            return file.read(_LIMIT).decode().strip()
    except (OSError, ValueError):
        return None


def number(path: Path, *, base: int = 10) -> int | None:
    """Return the whole number in `path`; None where there is none or it is negative."""
    said = text(path)
    try:
        value = int(said, base) if said else -1
    except ValueError:
        return None
    return value if value >= 0 else None
