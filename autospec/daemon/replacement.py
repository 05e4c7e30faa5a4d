"""Can a new child be started beside the old one? Pure, with the names of their sockets.

The child that runs shows what a second one needs: memory that it shares with no file (the
weights are mapped, and both use the same pages), and what became less on each GPU while it
loaded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autospec.errors import ServeError

MARGIN = 512 << 20
SLACK = 1.1
"""Factor on the measured need: buffers differ a little from start to start."""

LONGEST_PATH = 107
"""Bytes that fit the address of a UNIX socket on Linux (unix(7))."""

_MIB = 1 << 20


@dataclass(frozen=True)
class Room:
    """Bytes of main memory, and of each GPU's by its identity. None is unknown; a machine
    without GPUs has none in the mapping."""

    ram: int | None
    gpus: Mapping[str, int] | None


def no_room_for_two(need: Room, free: Room, *, more: int = 0) -> str | None:
    """Why a second child beside one that needs `need` does not fit into `free`; None: it fits.

    `more` bytes are what the second needs beyond the first (a draft's file), wherever it goes.
    """
    if need.ram is None or free.ram is None:
        return "it is not known how much memory a second one needs"
    wanted = _with_slack(need.ram + more)
    if free.ram < wanted:
        return f"a second one needs {wanted // _MIB} MiB, and {free.ram // _MIB} are free"
    if need.gpus is None or free.gpus is None:
        return "it is not known how much memory of the GPUs a second one needs"
    for gpu, taken in need.gpus.items():
        wanted = _with_slack(taken + more)
        left = free.gpus.get(gpu, 0)
        if left < wanted:
            return f"a second one needs {wanted // _MIB} MiB on {gpu}, and {left // _MIB} are free"
    return None


def _with_slack(needed: int) -> int:
    return int(needed * SLACK) + MARGIN


def taken(before: Room, after: Room, private: int | None) -> Room:
    """What a child has taken: `private` bytes of its own, and what each GPU lost meanwhile."""
    if before.gpus is None or after.gpus is None:
        return Room(private, None)
    lost = {gpu: free - after.gpus.get(gpu, 0) for gpu, free in before.gpus.items()}
    return Room(private, {gpu: bytes_ for gpu, bytes_ in lost.items() if bytes_ > 64 * _MIB})


def given_back(before: Room, now: Room) -> bool:
    """Whether the GPUs have (nearly) as much free memory as `before`; true where none is known."""
    if before.gpus is None or now.gpus is None:
        return True
    return all(now.gpus.get(gpu, free) >= free - MARGIN for gpu, free in before.gpus.items())


def socket_for(folder: Path, name: str, number: int) -> Path:
    """The socket of child `number` of the model `name`; a long name is shortened to a digest.

    ServeError where the folder's own path leaves no room.
    """
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    for stem in (name, digest):
        path = folder / f"{stem}-{number}.sock"
        if len(os.fsencode(path)) <= LONGEST_PATH:
            return path
    raise ServeError(
        f"{folder} is too long for a socket in it: at most {LONGEST_PATH} bytes fit",
        hint="let XDG_RUNTIME_DIR name a folder with a shorter path",
    )
