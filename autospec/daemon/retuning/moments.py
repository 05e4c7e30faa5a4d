"""The loads and depths of late, and how much of the time anything was at work at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from autospec.daemon.setting import Basis

MEMORY = 300.0
"""Seconds over which a moment loses weight by e."""

MOST = 6
"""Loads and depths that a decision weighs, those of most weight."""

_PER_OCTAVE = 2


@dataclass(frozen=True)
class Seen:
    """Seconds of one load at about one depth, and those seconds times the depth."""

    seconds: float = 0.0
    depth: float = 0.0


@dataclass(frozen=True)
class Moments:
    """A value, replaced by `observe`. `idle` and `cells` are seconds, faded by e over MEMORY."""

    cells: Mapping[tuple[int, int], Seen] = field(default_factory=lambda: MappingProxyType({}))
    idle: float = 0.0
    latest: Basis | None = None

    def observe(self, busy: int, depth: float, seconds: float) -> Moments:
        """After `seconds` with `busy` slots at work that were `depth` tokens deep on average."""
        if busy < 0 or not (math.isfinite(depth) and depth >= 0.0 and seconds >= 0.0):
            raise ValueError("a moment has a load, a depth and a length, none negative")
        fade = math.exp(-seconds / MEMORY)
        cells = {
            key: Seen(one.seconds * fade, one.depth * fade)
            for key, one in self.cells.items()
            if one.seconds * fade > 1e-3
        }
        idle = self.idle * fade
        if busy == 0:
            return Moments(MappingProxyType(cells), idle + seconds, self.latest)
        key = (busy, _bucket(depth))
        before = cells.get(key, Seen())
        cells[key] = Seen(before.seconds + seconds, before.depth + seconds * depth)
        return Moments(MappingProxyType(cells), idle, Basis(depth, busy))

    @property
    def working(self) -> float:
        """Share of the time in which a slot was at work; 1 before anything was seen."""
        busy = sum(one.seconds for one in self.cells.values())
        return busy / (busy + self.idle) if busy + self.idle > 0 else 1.0

    def mixture(self) -> tuple[tuple[Basis, float], ...]:
        """Loads and depths with their shares of the time at work, the largest first."""
        kept = sorted(self.cells.items(), key=lambda item: -item[1].seconds)[:MOST]
        whole = sum(one.seconds for _, one in kept)
        return tuple(
            (Basis(one.depth / one.seconds, busy), one.seconds / whole)
            for (busy, _), one in kept
            if one.seconds > 0
        )


def _bucket(depth: float) -> int:
    return int(_PER_OCTAVE * math.log2(1.0 + depth / 64.0))
