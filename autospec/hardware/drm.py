"""AMD and Intel GPUs as the kernel's display drivers describe them in `/sys/class/drm`."""

from __future__ import annotations

import re
from pathlib import Path

from autospec.hardware import files
from autospec.hardware.gpu import Gpu

_VENDORS = {0x1002: "amd", 0x8086: "intel"}
_PCIE_GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "32.0": 5, "64.0": 6}


def drm_gpus(root: Path = Path("/")) -> list[Gpu]:
    """Return the AMD and Intel GPUs in the order of their cards; `root` holds `sys`."""
    cards = [
        path
        for path in (root / "sys/class/drm").glob("card*")
        if re.fullmatch(r"card\d{1,4}", path.name)
    ]
    gpus: list[Gpu] = []
    for card in sorted(cards, key=lambda path: int(path.name[4:])):
        vendor = _VENDORS.get(files.number(card / "device/vendor", base=16) or 0)
        if vendor:
            gpus.append(_gpu(card / "device", vendor, len(gpus), root))
    return gpus


def _gpu(device: Path, vendor: str, index: int, root: Path) -> Gpu:
    total = files.number(device / "mem_info_vram_total")
    used = files.number(device / "mem_info_vram_used")
    return Gpu(
        vendor=vendor,
        index=index,
        name=files.text(device / "product_name") or _model(device),
        uuid=files.text(device / "unique_id") or None,
        address=_event(device, "PCI_SLOT_NAME"),
        driver=_driver(device, root),
        memory_total=total,
        memory_free=None if total is None or used is None else max(0, total - used),
        pcie_generation=_generation(files.text(device / "max_link_speed")),
        pcie_width=files.number(device / "max_link_width") or None,
        power_limit=_power_limit(device),
    )


def _model(device: Path) -> str | None:
    """The numbers of the model, which is all that the kernel keeps for most cards."""
    number = files.number(device / "device", base=16)
    return None if number is None else f"device 0x{number:04x}"


def _driver(device: Path, root: Path) -> str | None:
    """Name the driver and its version: its own or, for one built in, the kernel's."""
    name = _event(device, "DRIVER")
    if name is None:
        return None
    version = files.text(root / "sys/module" / name / "version")
    version = version or files.text(root / "proc/sys/kernel/osrelease")
    return f"{name} {version}" if version else name


def _event(device: Path, key: str) -> str | None:
    match = re.search(rf"^{key}=([\w.:-]+)$", files.text(device / "uevent") or "", re.MULTILINE)
    return match[1] if match else None


def _generation(speed: str | None) -> int | None:
    return _PCIE_GENERATIONS.get((speed or "").split(" ")[0])


def _power_limit(device: Path) -> float | None:
    """The cap in watts; the kernel counts microwatts."""
    caps = (files.number(path) for path in sorted(device.glob("hwmon/hwmon*/power1_cap")))
    return next((cap / 1e6 for cap in caps if cap), None)
