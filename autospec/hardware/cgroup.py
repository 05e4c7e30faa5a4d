"""What a control group allows this process, version 1 and 2.

A limit of any ancestor binds as well, so each path is walked up to the mount.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autospec.hardware import files

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNLIMITED_V1 = 1 << 60
"""Version 1 says "no limit" with the largest multiple of a page below 2^63."""


@dataclass(frozen=True)
class Limits:
    """`cpus`: processors' worth of time, a fraction possible. None: not limited, or unknown."""

    cpus: float | None = None
    memory_bytes: int | None = None


def limits(root: Path = Path("/")) -> Limits:
    """Read the tightest limits on this process; `root` holds `proc` and `sys`."""
    cpus: list[float] = []
    memory: list[int] = []
    for folder in folders(root, controller=""):
        cpus.extend(_quota(files.text(folder / "cpu.max")))
        memory.extend(_bytes(folder / "memory.max"))
    for folder in folders(root, controller="cpu"):
        quota = files.number(folder / "cpu.cfs_quota_us")
        cpus.extend(_quota(f"{quota} {files.text(folder / 'cpu.cfs_period_us')}"))
    for folder in folders(root, controller="memory"):
        memory.extend(_bytes(folder / "memory.limit_in_bytes"))
    return Limits(min(cpus, default=None), min(memory, default=None))


def folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the group's folder and its ancestors; an empty `controller` means version 2.

    Inside a container `/proc/self/cgroup` may name a path of the host that is not mounted; the
    folders that are not there are passed over, the mount itself is always looked at.
    """
    mounts = root / "sys/fs/cgroup"
    for line in (files.text(root / "proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller not in names.split(",") or (not controller and hierarchy != "0"):
            continue
        mount = mounts / names if controller else mounts
        if not controller and not (mount / "cgroup.controllers").is_file():
            mount = mounts / "unified"
        group = Path(path.lstrip("/"))
        if ".." not in group.parts:
            yield from (mount / part for part in (group, *group.parents))


def _quota(said: str | None) -> Iterator[float]:
    """Read `QUOTA PERIOD`, both in µs; a quota of `max` (or none) is no limit."""
    quota, _, period = (said or "").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
        yield int(quota) / int(period)


def _bytes(path: Path) -> Iterator[int]:
    value = files.number(path)
    if value is not None and value < _UNLIMITED_V1:
        yield value
