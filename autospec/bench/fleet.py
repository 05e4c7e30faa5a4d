"""The servers of all arms: side by side while they fit, in turn where memory is short.

How much one more server takes is measured when one is started: weights that are mapped from a
file are shared on a CPU and are there once for each server on a GPU, and nobody knows beforehand.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import httpx
import psutil

from autospec.bench.arms import Arm
from autospec.engine.server import Server
from autospec.errors import AutospecError
from autospec.hardware.nvidia import nvidia_gpus

_SLACK = 1.3
"""A further server must fit that much larger than the largest so far."""


def free_memory() -> tuple[int, ...]:
    """Bytes free: the machine's, then each GPU's that tells."""
    gpus, _ = nvidia_gpus()
    known = [gpu.memory_free for gpu in gpus if gpu.memory_free is not None]
    return (psutil.virtual_memory().available, *known)


class Fleet:
    """Arms by name. `failed` tells why an arm takes no part any more; `crowded` that not all of
    them fit into memory together."""

    def __init__(
        self,
        arms: Mapping[str, Arm],
        folder: Path,
        free: Callable[[], Sequence[int]] = free_memory,
    ) -> None:
        self.arms = dict(arms)
        self.failed: dict[str, str] = {}
        self.crowded = False
        self._folder = folder
        self._free = free
        self._running: list[str] = []
        self._largest: list[int] = []

    @property
    def names(self) -> list[str]:
        """The arms that take part."""
        return [name for name in self.arms if name not in self.failed]

    @property
    def pids(self) -> list[int]:
        return [pid for name in self._running for pid in self.arms[name].pids]

    async def get(self, name: str, cell: str) -> Server | None:
        """The server of an arm, ready for `cell`; None where the arm has failed for good."""
        try:
            if name not in self._running:
                await self._make_room()
                before = self._free()
                self._running.append(name)
                await self.arms[name].start(self._folder / f"{name}.sock")
                server = await self.arms[name].ready(cell)
                self._learn(before)
            else:
                server = await self.arms[name].ready(cell)
        except (AutospecError, OSError, httpx.HTTPError) as error:
            await self.drop(name, str(error) or type(error).__name__)
            return None
        self._running.remove(name)
        self._running.append(name)
        return server

    async def drop(self, name: str, reason: str) -> None:
        """End an arm for good; `reason` is told in the report."""
        self.failed[name] = reason
        await self._end(name)

    @contextlib.asynccontextmanager
    async def alive(self, name: str) -> AsyncIterator[None]:
        """Within it an error of the arm's server ends the arm, and not the benchmark."""
        try:
            yield
        except (httpx.HTTPError, AutospecError) as error:
            await self.drop(name, str(error) or type(error).__name__)

    async def close(self) -> None:
        for name in list(self._running):
            await self._end(name)

    async def _make_room(self) -> None:
        """End the servers that were asked the longest ago until one more fits."""
        while self._running and not self._fits():
            self.crowded = True
            await self._end(self._running[0])

    def _fits(self) -> bool:
        pairs = zip(self._free(), self._largest, strict=False)
        return all(free > _SLACK * largest for free, largest in pairs)

    def _learn(self, before: Sequence[int]) -> None:
        taken = [max(0, a - b) for a, b in zip(before, self._free(), strict=False)]
        known = self._largest or [0] * len(taken)
        self._largest = [max(a, b) for a, b in zip(known, taken, strict=False)]

    async def _end(self, name: str) -> None:
        if name in self._running:
            self._running.remove(name)
            await self.arms[name].stop()
