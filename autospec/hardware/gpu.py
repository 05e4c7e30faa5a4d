"""GPUs as the drivers describe them, and devices as an engine names them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autospec.text import printable

_DEVICE = re.compile(
    r"  (?P<name>\S+): (?P<what>.*) \((?P<total>\d+) MiB, (?P<free>\d+) MiB free\)"
)
_MIB = 1 << 20
_MOST_DEVICES = 256
_LONGEST_LINE = 1000


@dataclass(frozen=True)
class Gpu:
    """One GPU. None is what its driver did not say; `errors` holds what it said instead.

    Memory in bytes, `power_limit` in watts. `pcie_generation` and `pcie_width` are the best
    that card and slot can do together: an idle card trains down. `throttling` names what holds
    its clocks down right now. `address` is the PCI address.
    """

    vendor: str
    index: int
    name: str | None = None
    uuid: str | None = None
    address: str | None = None
    driver: str | None = None
    memory_total: int | None = None
    memory_free: int | None = None
    compute_capability: str | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    power_limit: float | None = None
    throttling: tuple[str, ...] | None = None
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineDevice:
    """A device that an engine can compute on, by the name its `--device` takes. Bytes."""

    name: str
    description: str
    memory_total: int
    memory_free: int


def parse_list_devices(text: str) -> tuple[EngineDevice, ...] | None:
    """Read what `llama-server --list-devices` prints.

    Backends talk before and between; only lines of the list itself are taken. No list at all
    gives None, an engine without devices an empty tuple.
    """
    lines = iter(text.splitlines())
    if not any(line.strip() == "Available devices:" for line in lines):
        return None
    devices: list[EngineDevice] = []
    for line in lines:
        match = _DEVICE.fullmatch(printable(line.rstrip())) if len(line) < _LONGEST_LINE else None
        if match and len(devices) < _MOST_DEVICES:
            devices.append(
                EngineDevice(
                    name=match["name"],
                    description=match["what"],
                    memory_total=int(match["total"]) * _MIB,
                    memory_free=int(match["free"]) * _MIB,
                )
            )
    return tuple(devices)
