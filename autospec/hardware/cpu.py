"""The processor, and how much of it this process may use."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from autospec.hardware import files

_X86_PREFIXES = ("avx", "amx")
_X86_NAMES = frozenset({"sse4_2", "f16c", "fma", "bmi2"})
_ARM_NAMES = {
    "asimd": "neon",
    "neon": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fp16",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
}


@dataclass(frozen=True)
class NumaNode:
    id: int
    cpus: int
    memory_bytes: int | None


@dataclass(frozen=True)
class Cpu:
    """`physical` and `logical` count the machine's cores, `allowed` the logical ones that this
    process may run on (affinity), `quota` the processors' worth of time that its control group
    gets, None for all. `usable` is what threads should be counted by: the lower of the two,
    rounded up. `instructions` are the sets that matter to matrix products, on every core.
    """

    model: str | None
    physical: int | None
    logical: int | None
    allowed: int | None
    quota: float | None
    usable: int
    instructions: tuple[str, ...]
    numa: tuple[NumaNode, ...]


def cpu(quota: float | None, root: Path = Path("/"), allowed: int | None = None) -> Cpu:
    """Look at the processor; `root` holds `proc` and `sys`, `allowed` overrides the affinity."""
    blocks = parse_cpuinfo(files.text(root / "proc/cpuinfo") or "")
    logical = len(blocks) or os.cpu_count()
    allowed = affinity() if allowed is None else allowed
    whole = allowed or logical or 1
    return Cpu(
        model=_model(blocks),
        physical=_physical(blocks),
        logical=logical,
        allowed=allowed,
        quota=quota,
        usable=max(1, min(whole, math.ceil(quota)) if quota is not None else whole),
        instructions=_instructions(blocks),
        numa=_numa(root / "sys/devices/system/node"),
    )


def affinity() -> int | None:
    """How many logical cores this process may run on; None where the system has no such notion."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def parse_cpuinfo(text: str) -> list[dict[str, str]]:
    """Split `/proc/cpuinfo` into one mapping for each logical core."""
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        if "processor" in fields:
            blocks.append(fields)
    return blocks


def count_cpus(cpulist: str) -> int:
    """Count the cores of a kernel's list such as `0-3,8,10-11`; what is no range counts 0."""
    count = 0
    for part in cpulist.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash):
            count += max(0, int(last or first) - int(first) + 1)
    return count


def _model(blocks: list[dict[str, str]]) -> str | None:
    """Name the kinds of core in the machine, each once, in the order of the kernel."""
    names = [fields.get("model name") or fields.get("cpu model") for fields in blocks]
    return " + ".join(dict.fromkeys(name for name in names if name)) or None


def _physical(blocks: list[dict[str, str]]) -> int | None:
    cores = {(fields.get("physical id", "0"), fields.get("core id")) for fields in blocks}
    return len(cores) if cores and all(core is not None for _, core in cores) else None


def _instructions(blocks: list[dict[str, str]]) -> tuple[str, ...]:
    sets = [_known((f.get("flags") or f.get("Features") or "").split()) for f in blocks]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def _known(flags: list[str]) -> set[str]:
    x86 = {flag for flag in flags if flag.startswith(_X86_PREFIXES) or flag in _X86_NAMES}
    return x86 | {_ARM_NAMES[flag] for flag in flags if flag in _ARM_NAMES}


def _numa(folder: Path) -> tuple[NumaNode, ...]:
    nodes = []
    for path in sorted(folder.glob("node*")):
        if not path.name[4:].isdecimal():
            continue
        total = re.search(r"MemTotal:\s+(\d+) kB", files.text(path / "meminfo") or "")
        nodes.append(
            NumaNode(
                id=int(path.name[4:]),
                cpus=count_cpus(files.text(path / "cpulist") or ""),
                memory_bytes=int(total[1]) * 1024 if total else None,
            )
        )
    return tuple(sorted(nodes, key=lambda node: node.id))
