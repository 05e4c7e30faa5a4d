"""The devices of an engine by its own word, which is the truth for Vulkan, Metal and SYCL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autospec.engine.find import find_engine
from autospec.engine.probe import probe
from autospec.errors import EngineError
from autospec.hardware.gpu import EngineDevice, parse_list_devices

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from autospec.engine.find import Engine


@dataclass(frozen=True)
class EngineView:
    """What the engine at hand computes on. `devices` is None where it does not say, empty where
    it has only the processor; `problem` says why something is unknown."""

    server: str | None = None
    version: str | None = None
    devices: tuple[EngineDevice, ...] | None = None
    problem: str | None = None


def list_devices(engine: Engine, rpc: Sequence[str] = ()) -> tuple[EngineDevice, ...] | None:
    """Ask `engine` for its devices, and for those of the workers `rpc`; None where it cannot be
    asked, or its answer holds no list.

    A build that does not know the question might take it for an order to serve. Raises
    EngineBroken.
    """
    if "--list-devices" not in engine.capabilities.flags:
        return None
    workers = ("--rpc", ",".join(rpc)) if rpc else ()
    asked = probe(engine.server, [*workers, "--list-devices"], timeout=60.0)
    return parse_list_devices(asked.stdout)


def view(explicit: Path | None = None) -> EngineView:
    """Find an engine and ask it. One that is missing or broken is a problem said, not an error,
    unless it was named: then EngineError is raised."""
    try:
        engine = find_engine(explicit)
    except EngineError as error:
        if explicit is not None:
            raise
        return EngineView(problem=str(error))
    try:
        devices, problem = list_devices(engine), None
    except EngineError as error:
        devices, problem = None, str(error)
    return EngineView(str(engine.server), engine.version, devices, problem)
