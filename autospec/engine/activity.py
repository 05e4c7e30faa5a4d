"""How much a program has worked so far: only growth means anything, and only for one life."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Activity:
    """Of a process and all below it: `seconds` of processor time, `fetched` pages and bytes read
    from disk (each read or major page fault makes it grow)."""

    seconds: float
    fetched: int

    def since(self, earlier: Activity) -> Activity:
        return Activity(self.seconds - earlier.seconds, self.fetched - earlier.fetched)


def activity(pid: int) -> Activity | None:
    """Look once; None when there is no such process (any more)."""
    try:
        top = psutil.Process(pid)
        family = [top, *top.children(recursive=True)]
    except psutil.Error:
        return None
    seconds, fetched = 0.0, 0
    for process in family:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system
        with contextlib.suppress(psutil.Error, AttributeError):
            fetched += process.io_counters().read_bytes
    return Activity(seconds, fetched)


def private_bytes(pid: int) -> int | None:
    """Memory that a second such process would need again: what it does not share with files."""
    try:
        top = psutil.Process(pid)
        family = [top, *top.children(recursive=True)]
        found = [process.memory_info() for process in family]
    except psutil.Error:
        return None
    return sum(info.rss - getattr(info, "shared", 0) for info in found)
