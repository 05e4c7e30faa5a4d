"""What the owner of a child looks at around it; tests put their own in its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from autospec.daemon.replacement import Room
from autospec.engine.activity import Activity, activity
from autospec.hardware.drm import drm_gpus
from autospec.hardware.nvidia import nvidia_gpus
from autospec.hardware.pressure import Pressure, pressure


def free_room() -> Room:
    """What is free now: of the machine or the control group, and of each GPU."""
    nvidia, problems = nvidia_gpus()
    gpus = (*nvidia, *drm_gpus())
    free = {gpu.uuid or f"{gpu.vendor} {gpu.index}": gpu.memory_free for gpu in gpus}
    known = {name: left for name, left in free.items() if left is not None}
    seen = None if problems or len(known) < len(gpus) else known
    return Room(pressure().available, seen)


@dataclass(frozen=True)
class Surroundings:
    """Each may take some milliseconds and is asked in a thread; `clock` is monotonic seconds."""

    room: Callable[[], Room] = free_room
    pressure: Callable[[], Pressure] = pressure
    activity: Callable[[int], Activity | None] = activity
    clock: Callable[[], float] = time.monotonic
