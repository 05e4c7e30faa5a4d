"""Did the kernel run out of memory, and how near is it? Looked at before and after a death.

A process that the kernel kills to free memory cannot say so; the counters of its control group
(cgroups(7), version 2 `memory.events`, version 1 `memory.oom_control`) and of the machine
(`/proc/vmstat`) do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autospec.hardware import files
from autospec.hardware.cgroup import folders, limits

SCARCE = 0.03
"""Share of the memory under which it counts as exhausted: user-space killers act about there."""


@dataclass(frozen=True)
class Pressure:
    """`kills`: processes killed for memory since start, of our control group where it counts
    them. `available` and `usable` in bytes. None is unknown."""

    kills: int | None = None
    available: int | None = None
    usable: int | None = None

    @property
    def scarce(self) -> bool:
        if self.available is None or not self.usable:
            return False
        return self.available < SCARCE * self.usable


def pressure(root: Path = Path("/")) -> Pressure:
    """Look once. `root` holds `proc` and `sys`."""
    available, usable = _machine(root)
    limit = limits(root).memory_bytes
    if limit is not None and (usable is None or limit < usable):
        usable = limit
        used = _group_use(root)
        if used is not None:
            left = max(0, limit - used)
            available = left if available is None else min(available, left)
    return Pressure(_kills(root), available, usable)


def killed_for_memory(before: Pressure, after: Pressure) -> bool:
    """Whether a process that got SIGKILL between the two most likely got it for its memory."""
    if before.kills is not None and after.kills is not None and after.kills > before.kills:
        return True
    return before.scarce


def _machine(root: Path) -> tuple[int | None, int | None]:
    fields = _pairs(files.text(root / "proc/meminfo"))
    available, total = fields.get("MemAvailable:"), fields.get("MemTotal:")
    return (
        None if available is None else available * 1024,
        None if total is None else total * 1024,
    )


def _group_use(root: Path) -> int | None:
    """Bytes in use by our control group that the kernel could not drop at once."""
    for folder in folders(root, controller=""):
        used = files.number(folder / "memory.current")
        if used is not None:
            cached = _pairs(files.text(folder / "memory.stat"))
            return used - cached.get("inactive_file", 0) - cached.get("active_file", 0)
    return None


def _kills(root: Path) -> int | None:
    for controller, name in (("", "memory.events"), ("memory", "memory.oom_control")):
        for folder in folders(root, controller=controller):
            count = _pairs(files.text(folder / name)).get("oom_kill")
            if count is not None:
                return count
    return _pairs(files.text(root / "proc/vmstat")).get("oom_kill")


def _pairs(text: str | None) -> dict[str, int]:
    """Read lines of a name and a whole number; whatever follows (a unit) is let be."""
    found = {}
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdecimal():
            found[words[0]] = int(words[1])
    return found
