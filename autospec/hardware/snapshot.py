"""Everything that is known of the machine at one moment."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autospec.hardware.cgroup import limits
from autospec.hardware.cpu import Cpu, cpu
from autospec.hardware.drm import drm_gpus
from autospec.hardware.gpu import Gpu
from autospec.hardware.memory import Memory, memory
from autospec.hardware.nvidia import nvidia_gpus

_MEMORY_CLASS = 4 << 30


@dataclass(frozen=True)
class Hardware:
    """`problems` are sentences on what could not be seen, and why."""

    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...]
    problems: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; unknown is None."""
        return asdict(self)

    def key(self) -> str:
        """A digest of what makes this machine as fast as it is (16 hex digits).

        The same for the same machine at any load: CPU model, usable cores and instruction
        sets; memory rounded up to 4 GiB, since kernels keep a varying few MiB; each GPU's
        model, memory, power limit and driver.
        """
        what = [
            [self.cpu.model, self.cpu.usable, self.cpu.instructions],
            -(-self.memory.usable // _MEMORY_CLASS),
            [[gpu.name, gpu.memory_total, gpu.power_limit, gpu.driver] for gpu in self.gpus],
        ]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def snapshot(root: Path = Path("/")) -> Hardware:
    """Look at the machine. Never fails: what cannot be seen is None or a problem."""
    allowed = limits(root)
    nvidia, problems = nvidia_gpus()
    return Hardware(
        cpu=cpu(allowed.cpus, root),
        memory=memory(allowed.memory_bytes),
        gpus=(*nvidia, *drm_gpus(root)),
        problems=tuple(problems),
    )
