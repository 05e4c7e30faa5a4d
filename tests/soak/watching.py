"""How much the daemon takes while it runs, and whether that grows."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """Of the daemon alone, not of its children; `state` in bytes of all files in its folders."""

    memory: int
    descriptors: int
    threads: int
    children: int
    state: int


ALLOWED = Sample(memory=16 * MIB, descriptors=12, threads=4, children=1, state=10 * MIB)
"""Growth that says nothing: buffers that fill once, logs up to where they turn over."""

RELATIVE = 0.10


def sample(daemon: psutil.Process, *folders: Path) -> Sample:
    with daemon.oneshot():
        return Sample(
            memory=daemon.memory_info().rss,
            descriptors=daemon.num_fds(),
            threads=daemon.num_threads(),
            children=len(daemon.children(recursive=True)),
            state=sum(_size(file) for folder in folders for file in folder.rglob("*")),
        )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except OSError:
        return 0


def growth(samples: list[Sample]) -> dict[str, tuple[float, float, bool]]:
    """Median of the second quarter and of the last, and whether that is flat, for each figure."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    found = {}
    for one in fields(Sample):
        before, after = (
            statistics.median(asdict(sample)[one.name] for sample in part) for part in (early, late)
        )
        allowed = max(getattr(ALLOWED, one.name), RELATIVE * before)
        found[one.name] = (before, after, after - before <= allowed)
    return found
