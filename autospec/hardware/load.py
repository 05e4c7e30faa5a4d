"""Was the machine ours alone? Samples around a measurement, and what they say of it.

Another busy process on the same cores can make llama.cpp, whose threads spin, ten times slower;
a hot processor or a greedy hypervisor also change what is measured.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from autospec.hardware import files
from autospec.hardware.nvidia import SLOWDOWNS, nvidia_gpus

_SHORTEST = 0.2
"""Seconds; the kernel counts in ticks of 10 ms, so less says little."""

_NOTABLE_BUSY = 0.05
_NOTABLE_STEAL = 0.02


@dataclass(frozen=True)
class LoadSample:
    """`at` in monotonic seconds. `busy`, `stolen` and `total` are processor seconds since boot,
    over the cores that this process may run on: spent by anyone here, by the hypervisor on
    others, and altogether (idle included). `throttle_events` counts since boot; `slowdowns`
    are what holds the GPUs' clocks down now. None is unknown.
    """

    at: float
    busy: float | None = None
    stolen: float | None = None
    total: float | None = None
    load_average: float | None = None
    frequency_mhz: float | None = None
    throttle_events: int | None = None
    slowdowns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ContentionReport:
    """Shares of the usable cores' time, 0 to 1. `sentence` is None when all was quiet."""

    busy_share: float | None
    steal_share: float | None
    throttled: bool | None
    sentence: str | None


def sample(root: Path = Path("/")) -> LoadSample:
    """Look once; costs a few milliseconds. `root` holds `proc` and `sys`."""
    cores = allowed_cores()
    busy, stolen, total = parse_stat(files.text(root / "proc/stat") or "", cores)
    folders = [root / f"sys/devices/system/cpu/cpu{core}" for core in sorted(cores or ())]
    return LoadSample(
        at=time.monotonic(),
        busy=busy,
        stolen=stolen,
        total=total,
        load_average=_load_average(root),
        frequency_mhz=_frequency(folders),
        throttle_events=_throttle_events(folders),
        slowdowns=_gpu_slowdowns(),
    )


def compare(before: LoadSample, after: LoadSample, own_cpu_seconds: float) -> ContentionReport:
    """Judge what lies between two samples, of which `own_cpu_seconds` were the measurement's
    own (its processes and this one). Shares over less than 0.2 seconds stay unknown."""
    total = _growth(before.total, after.total)
    known = total is not None and total > 0 and after.at - before.at >= _SHORTEST
    busy = _growth(before.busy, after.busy) if known else None
    stolen = _growth(before.stolen, after.stolen) if known else None
    busy_share = None if busy is None else _share(busy - own_cpu_seconds, total)
    steal_share = None if stolen is None else _share(stolen, total)
    slowed = _slowing(before, after)
    said = []
    if busy_share is not None and busy_share >= _NOTABLE_BUSY:
        said.append(f"other processes took {busy_share:.0%} of the cores")
    if steal_share is not None and steal_share >= _NOTABLE_STEAL:
        said.append(f"the hypervisor took {steal_share:.0%} of the cores")
    said.extend(slowed or [])
    return ContentionReport(
        busy_share=busy_share,
        steal_share=steal_share,
        throttled=None if slowed is None else bool(slowed),
        sentence=f"the machine was not quiet: {'; '.join(said)}" if said else None,
    )


def allowed_cores() -> frozenset[int] | None:
    """The logical cores that this process may run on, None for all."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def parse_stat(
    text: str, cores: frozenset[int] | None
) -> tuple[float | None, float | None, float | None]:
    """Read (busy, stolen, total) seconds over `cores` from `/proc/stat`.

    A line is `cpuN user nice system idle iowait irq softirq steal …`, in ticks; guests are
    counted in user already. None for all three where no core of ours is listed.
    """
    busy = stolen = idle = 0
    found = False
    for line in text.splitlines():
        name, *fields = line.split()[:9] or [""]
        core = name.removeprefix("cpu")
        if core == name or not core.isdecimal() or not all(f.isdecimal() for f in fields):
            continue
        if len(fields) < 8 or (cores is not None and int(core) not in cores):
            continue
        user, nice, system, core_idle, iowait, irq, softirq, steal = map(int, fields)
        busy += user + nice + system + irq + softirq
        stolen += steal
        idle += core_idle + iowait
        found = True
    if not found:
        return None, None, None
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, stolen / tick, (busy + stolen + idle) / tick


def _slowing(before: LoadSample, after: LoadSample) -> list[str] | None:
    """Say what slowed the clocks; None where nothing could be seen."""
    seen = False
    said = []
    events = _growth(before.throttle_events, after.throttle_events)
    if events is not None:
        seen = True
        if events:
            said.append("the processor throttled itself, too hot or at its power limit")
    if before.slowdowns is not None and after.slowdowns is not None:
        seen = True
        reasons = dict.fromkeys(before.slowdowns + after.slowdowns)
        said.extend(f"a GPU was held back ({reason})" for reason in reasons)
    return said if seen else None


def _growth(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or after < before:
        return None
    return after - before


def _share(part: float, whole: float | None) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole else None


def _load_average(root: Path) -> float | None:
    try:
        return float((files.text(root / "proc/loadavg") or "").split(" ")[0])
    except ValueError:
        return None


def _frequency(folders: list[Path]) -> float | None:
    """The mean clock of the cores, in MHz; sysfs counts kHz."""
    seen = [files.number(folder / "cpufreq/scaling_cur_freq") for folder in folders]
    known = [frequency for frequency in seen if frequency]
    return sum(known) / len(known) / 1000 if known else None


def _throttle_events(folders: list[Path]) -> int | None:
    names = ("core_throttle_count", "package_throttle_count")
    seen = [
        files.number(folder / "thermal_throttle" / name) for folder in folders for name in names
    ]
    known = [count for count in seen if count is not None]
    return sum(known) if known else None


def _gpu_slowdowns() -> tuple[str, ...] | None:
    gpus, _ = nvidia_gpus()
    known = [gpu.throttling for gpu in gpus if gpu.throttling is not None]
    if not known:
        return None
    return tuple(dict.fromkeys(name for names in known for name in names if name in SLOWDOWNS))
