"""A correction of calibrated times that live steps teach, with what is not known of it.

For each step that production shows let

    y = log(observed / calibrated) = f(x) + noise,   x = log2 of (total batch, 1 + depth/256, slots)

with a Gaussian process prior on the correction f (C. Rasmussen and C. Williams, "Gaussian Processes
for Machine Learning", 2006, chapter 2),

    k(x, x') = LEVEL² + SLOPE²·x·x' + LOCAL²·exp(−|x − x'|² / 2·REACH²):

everything dearer, dearer by the octave, dearer just here. It multiplies the calibrated time, so
jags stay where they were measured, and what was seen at one load tells something of another.

**Robustness.** Steps are gathered in cells of nearly equal x, a cell keeps its last `KEPT` values
of y and speaks by their median: less than half of them may be outliers of any size (contention).
The median of n values has a variance of π/2·σ²/n, with σ from their absolute deviations.
**Forgetting.** A cell that saw nothing for a while grows uncertain by `DRIFT` for each 1000 steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

LEVEL, SLOPE, LOCAL, REACH = 0.3, 0.04, 0.05, 0.5
"""Prior spreads of f: of its level, of its slope an octave, of what is local within `REACH`."""

NOISE = 0.02
"""The least relative noise of a step that is believed."""

ALONE = 0.3
"""What a single step may be off by for reasons of its own; counts for less the more were seen."""

MOST = math.log(100.0)
"""No step is taken to be dearer or cheaper by more: times that are no measurements stay finite."""

DRIFT = 0.1
KEPT = 16
MOST_CELLS = 128

DEPTH_UNIT = 256.0


@dataclass(frozen=True)
class Cell:
    """Steps of nearly equal x: their last log ratios, and the number of the step of each."""

    x: tuple[float, ...]
    ratios: tuple[float, ...] = ()
    when: tuple[int, ...] = ()

    def add(self, ratio: float, when: int) -> Cell:
        return Cell(self.x, (*self.ratios, ratio)[-KEPT:], (*self.when, when)[-KEPT:])

    def since(self, when: int) -> Cell:
        """What was seen after step `when`."""
        count = sum(one > when for one in self.when)
        return Cell(
            self.x, self.ratios[len(self.when) - count :], self.when[-count:] if count else ()
        )

    def variance(self, now: int, sigma: float) -> float:
        """Of the median, `now` steps on; `sigma` is the noise of a step."""
        n = len(self.ratios)
        age = DRIFT**2 * (now - self.when[-1]) / 1000.0
        return math.pi / 2 * sigma**2 / n + (ALONE / n) ** 2 + age


@dataclass(frozen=True, eq=False)
class Correction:
    """The posterior of f; a value, replaced by `add`."""

    cells: Mapping[tuple[int, ...], Cell] = field(default_factory=dict)
    seen: int = 0

    def add(self, x: Floats, ratios: Floats) -> Correction:
        """With steps at `x` (n, 3) that took exp(`ratios`) (n,) times what was calibrated."""
        cells, seen = dict(self.cells), self.seen
        for at, ratio in zip(x.tolist(), np.clip(ratios, -MOST, MOST).tolist(), strict=True):
            seen += 1
            key = tuple(round(4 * value) for value in at)
            cells[key] = cells.get(key, Cell(tuple(at))).add(ratio, seen)
        while len(cells) > MOST_CELLS:
            del cells[min(cells, key=lambda key: cells[key].when[-1])]
        return Correction(cells, seen)

    def last(self, steps: int) -> Correction:
        """With the last `steps` steps alone."""
        cells = {key: cell.since(self.seen - steps) for key, cell in self.cells.items()}
        return Correction({key: cell for key, cell in cells.items() if cell.when}, self.seen)

    def factor(self, x: Floats) -> Floats:
        """What to multiply calibrated times at `x` (n, 3) by: (n,)."""
        if not self.cells:
            return np.ones(len(x))
        at, weights, _ = self._posterior
        factor: Floats = np.exp(_kernel(x, at) @ weights)
        return factor

    def spread(self, x: Floats, reference: Floats) -> tuple[Floats, Floats]:
        """Standard deviation of f(x) − f(reference) now, and before anything was seen, (n,)."""
        prior = _difference(x, reference, None)
        if not self.cells:
            return prior, prior
        at, _, precision = self._posterior
        return _difference(x, reference, (at, precision)), prior

    @cached_property
    def _posterior(self) -> tuple[Floats, Floats, Floats]:
        """Where the cells are, the weights of the posterior mean, and the inverse of their
        covariance."""
        cells = list(self.cells.values())
        at = np.array([cell.x for cell in cells])
        medians = np.array([np.median(cell.ratios) for cell in cells])
        off = [abs(y - m) for cell, m in zip(cells, medians, strict=True) for y in cell.ratios]
        sigma = max(1.4826 * float(np.median(off)), NOISE)
        noise = np.array([cell.variance(self.seen, sigma) for cell in cells])
        precision = np.asarray(np.linalg.inv(_kernel(at, at) + np.diag(noise)), dtype=np.float64)
        return at, np.asarray(precision @ medians), precision


def place(totals: ArrayLike, depth: ArrayLike, slots: ArrayLike) -> Floats:
    """x (n, 3) of steps that verify or draft `totals` tokens."""
    deep = np.log2(1.0 + np.asarray(depth) / DEPTH_UNIT)
    columns = np.broadcast_arrays(np.log2(totals), deep, np.log2(slots))
    return np.column_stack([column.astype(np.float64) for column in columns])


def _kernel(a: Floats, b: Floats) -> Floats:
    """k(a, b), (n, m)."""
    apart = np.sum((a[:, np.newaxis] - b) ** 2, axis=2)
    kernel: Floats = LEVEL**2 + SLOPE**2 * a @ b.T + LOCAL**2 * np.exp(-apart / (2 * REACH**2))
    return kernel


def _difference(x: Floats, reference: Floats, known: tuple[Floats, Floats] | None) -> Floats:
    """Standard deviation of f(x) − f(reference), (n,), `reference` (1, 3); of f(x) for (0, 3)."""

    def covariance(a: Floats, b: Floats) -> Floats:
        kernel = _kernel(a, b)
        if known is None:
            return kernel
        at, precision = known
        left: Floats = kernel - _kernel(a, at) @ precision @ _kernel(at, b)
        return left

    variance = np.diag(covariance(x, x)).copy()
    if len(reference):
        variance += covariance(reference, reference)[0, 0] - 2.0 * covariance(x, reference)[:, 0]
    deviation: Floats = np.sqrt(np.maximum(variance, 0.0))
    return deviation
