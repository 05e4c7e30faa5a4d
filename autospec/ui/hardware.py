"""The machine as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from autospec.engine.devices import EngineView
    from autospec.hardware.cpu import Cpu
    from autospec.hardware.gpu import Gpu
    from autospec.hardware.memory import Memory
    from autospec.hardware.snapshot import Hardware

UNKNOWN = "[dim]unknown[/]"


def machine(hardware: Hardware, engine: EngineView) -> RenderableType:
    """Draw all of it: processor and memory, GPUs, the engine's devices, what is wrong."""
    problems = [*hardware.problems, *([engine.problem] if engine.problem else [])]
    return Group(
        _facts([*_cpu(hardware.cpu), *_memory(hardware.memory), *_engine(engine)]),
        *([_gpus(hardware.gpus)] if hardware.gpus else []),
        *([_devices(engine)] if engine.devices else []),
        *(f"[yellow]![/] {escape(problem)}" for problem in problems),
    )


def gigabytes(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count / 2**30:.1f} GiB"


def _facts(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _cpu(cpu: Cpu) -> Iterable[tuple[str, str]]:
    yield "Processor", _text(cpu.model)
    yield "Cores", f"{_text(cpu.physical)} physical, {_text(cpu.logical)} logical"
    quota = "" if cpu.quota is None else f", a quota of {cpu.quota:g}"
    yield "Usable here", f"{cpu.usable} (may run on {_text(cpu.allowed)}{quota})"
    yield "Instructions", " ".join(cpu.instructions) or UNKNOWN
    if len(cpu.numa) > 1:
        nodes = (f"{node.cpus} cores, {gigabytes(node.memory_bytes)}" for node in cpu.numa)
        yield "NUMA nodes", "; ".join(nodes)


def _memory(memory: Memory) -> Iterable[tuple[str, str]]:
    yield "Memory", f"{gigabytes(memory.total)}, {gigabytes(memory.available)} available"
    if memory.limit is not None:
        yield "Memory limit", f"{gigabytes(memory.limit)} by the control group"
    if memory.swap_total:
        yield "Swap", f"{gigabytes(memory.swap_total)}, {gigabytes(memory.swap_free)} free"


def _engine(engine: EngineView) -> Iterable[tuple[str, str]]:
    if engine.server is None:
        yield "Engine", UNKNOWN
        return
    only = " (computes on the processor only)" if engine.devices == () else ""
    yield "Engine", f"{escape(engine.server)}{only}"
    yield "Version", _text(engine.version)


def _gpus(gpus: tuple[Gpu, ...]) -> Table:
    table = Table(title="GPUs", title_justify="left")
    for name in ("GPU", "Memory", "free", "Driver", "Compute", "PCIe", "Power", "Held back by"):
        table.add_column(name)
    for gpu in gpus:
        table.add_row(
            f"{gpu.vendor} {gpu.index}: {_text(gpu.name)}",
            gigabytes(gpu.memory_total),
            gigabytes(gpu.memory_free),
            _text(gpu.driver),
            _text(gpu.compute_capability),
            f"{_text(gpu.pcie_generation)} ×{_text(gpu.pcie_width)}",
            UNKNOWN if gpu.power_limit is None else f"{gpu.power_limit:.0f} W",
            UNKNOWN if gpu.throttling is None else ", ".join(gpu.throttling) or "nothing",
        )
        for error in gpu.errors:
            table.add_row(f"  [red]{escape(error)}[/]")
    return table


def _devices(engine: EngineView) -> Table:
    table = Table(title="Devices of the engine", title_justify="left")
    for name in ("--device", "Device", "Memory", "free"):
        table.add_column(name)
    for device in engine.devices or ():
        table.add_row(
            escape(device.name),
            escape(device.description),
            gigabytes(device.memory_total),
            gigabytes(device.memory_free),
        )
    return table


def _text(value: str | int | None) -> str:
    return UNKNOWN if value is None else escape(str(value))
