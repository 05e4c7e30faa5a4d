"""NVIDIA GPUs through NVML. Each question is guarded on its own: a GPU that fell off the bus
still gets an entry, with what the driver said of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from autospec.hardware.gpu import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_THROTTLING = {
    0x0002: "clocks set by an application",
    0x0004: "power cap",
    0x0008: "hardware slowdown",
    0x0010: "sync boost",
    0x0020: "software thermal slowdown",
    0x0040: "hardware thermal slowdown",
    0x0080: "power brake",
    0x0100: "display clock",
}

SLOWDOWNS = frozenset(_THROTTLING[bit] for bit in (0x08, 0x20, 0x40, 0x80))
"""Reasons that make a measurement unlike the next one. The power cap is not among them: a GPU
at work normally runs into it, and will again."""

_SILENT = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
_NO_DRIVER = frozenset({pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})


@dataclass
class _Questions:
    """Asks one thing at a time and keeps what went wrong."""

    errors: list[str] = field(default_factory=list)

    def ask(self, what: str, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except pynvml.NVMLError as error:
            if error.value not in _SILENT:
                self.errors.append(f"{what}: {error}")
        except (ValueError, OSError) as error:
            self.errors.append(f"{what}: {error}")
        return None


def nvidia_gpus(nvml: Any = pynvml) -> tuple[list[Gpu], list[str]]:  # noqa: ANN401
    """Return the GPUs, and sentences on why some or all cannot be seen.

    A machine without a driver has no GPUs and no problem. `nvml` is the module `pynvml`.
    """
    try:
        nvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [], [] if error.value in _NO_DRIVER else [f"the NVIDIA driver says: {error}"]
    try:
        questions = _Questions()
        driver = questions.ask("driver", nvml.nvmlSystemGetDriverVersion)
        count = questions.ask("count", nvml.nvmlDeviceGetCount) or 0
        return [_gpu(nvml, index, driver) for index in range(count)], questions.errors
    finally:
        _Questions().ask("shutdown", nvml.nvmlShutdown)


def _gpu(nvml: Any, index: int, driver: str | None) -> Gpu:  # noqa: ANN401
    questions = _Questions()
    ask = questions.ask
    handle = ask("handle", lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return Gpu("nvidia", index, driver=driver, errors=tuple(questions.errors))
    memory = ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    capability = ask("compute", lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    power = ask("power", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    reasons = ask("clocks", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    pci = ask("pci", lambda: nvml.nvmlDeviceGetPciInfo(handle))
    return Gpu(
        vendor="nvidia",
        index=index,
        name=ask("name", lambda: nvml.nvmlDeviceGetName(handle)),
        uuid=ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle)),
        address=pci and str(pci.busId),
        driver=driver,
        memory_total=None if memory is None else memory.total,
        memory_free=None if memory is None else memory.free,
        compute_capability=capability and f"{capability[0]}.{capability[1]}",
        pcie_generation=ask("pcie", lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        pcie_width=ask("pcie", lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        power_limit=None if power is None else power / 1000,
        throttling=None if reasons is None else throttle_names(reasons),
        errors=tuple(dict.fromkeys(questions.errors)),
    )


def throttle_names(bits: int) -> tuple[str, ...]:
    """Name the reasons in NVML's bit mask; an idle GPU (0x1) is not throttled."""
    return tuple(name for bit, name in _THROTTLING.items() if bits & bit)
