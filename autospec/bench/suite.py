"""What a benchmark measures: cells, how many rows of each, and when that is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autospec.bench.workloads import MIXTURE, Request, deep_request

DEPTH = "depth"
_SHARES = (0.25, 0.5, 0.8)
"""Depths as shares of a slot's context: the last leaves room for an answer and for texts that
have more tokens than was reckoned with."""


@dataclass(frozen=True)
class Cell:
    """One workload at one load. With `depth`, in tokens, the workload is a long report."""

    workload: str
    slots: int = 1
    depth: int = 0

    @property
    def key(self) -> str:
        """Its name in reports: `code`, `mixture/slots=2`, `depth=512`."""
        name = f"{DEPTH}={self.depth}" if self.depth else self.workload
        return name if self.slots == 1 else f"{name}/slots={self.slots}"

    @property
    def mixed(self) -> bool:
        return self.workload == MIXTURE

    def requests(self, row: int, known: dict[str, tuple[Request, ...]]) -> list[Request]:
        """What row number `row` asks, one request a slot; after the last one it begins anew."""
        numbers = range(row * self.slots, (row + 1) * self.slots)
        if self.depth:
            return [deep_request(self.depth, number) for number in numbers]
        requests = known[self.workload]
        return [requests[number % len(requests)] for number in numbers]


@dataclass(frozen=True)
class Suite:
    """`tokens` an answer; a cell is asked `rows` at a time, `passes` times at most, and is done
    once every arm's ratio to plain has an interval of ±`width` (relative). `budget` in seconds
    for everything after the calibration, of which the sweep takes `sweep_share` at most.
    `learning`: seconds of traffic that the tuned arms see before they are compared.
    The sweep goes over `n_max` × `p_min`, with `sweep_tokens` an answer.
    """

    name: str
    tokens: int
    rows: int
    passes: int
    width: float
    budget: float
    sweep_share: float
    learning: float
    n_max: tuple[int, ...]
    p_min: tuple[float, ...]
    sweep_tokens: int


QUICK = Suite(
    name="quick",
    tokens=48,
    rows=3,
    passes=3,
    width=0.03,
    budget=1500.0,
    sweep_share=0.4,
    learning=30.0,
    n_max=(2, 4, 8, 16),
    p_min=(0.0, 0.4, 0.75),
    sweep_tokens=24,
)
FULL = Suite(
    name="full",
    tokens=96,
    rows=4,
    passes=6,
    width=0.015,
    budget=14400.0,
    sweep_share=0.4,
    learning=90.0,
    n_max=(1, 2, 3, 4, 6, 8, 12, 16),
    p_min=(0.0, 0.2, 0.4, 0.6, 0.75, 0.9),
    sweep_tokens=48,
)
SUITES = {suite.name: suite for suite in (QUICK, FULL)}


def cells_of(
    workloads: Sequence[str], slots: Sequence[int], depths: Sequence[int]
) -> tuple[Cell, ...]:
    """Every workload for one request at a time, then the loads and the depths.

    Under load the mixture is asked, without one the last of `workloads`.
    """
    loaded = MIXTURE if MIXTURE in workloads else workloads[-1]
    cells = [Cell(workload) for workload in workloads] if 1 in slots else []
    cells += [Cell(loaded, count) for count in slots if count > 1]
    cells += [Cell(DEPTH, 1, depth) for depth in depths if depth]
    return tuple(cells)


def default_depths(a_slot: int, tokens: int) -> tuple[int, ...]:
    """Depths up to a slot's context of `a_slot` tokens that leave room for `tokens` more."""
    depths = [int(share * (a_slot - tokens)) for share in _SHARES]
    return tuple(depth for depth in depths if depth >= 128)
