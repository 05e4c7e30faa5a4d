"""What a step costs: a surface over batch, context depth and busy slots.

A target step over `s` slots with `b` tokens each, every slot `d` tokens deep, is taken apart as

    T(b, d, s) = W(b·s) + φ·s·A(b, d)

`W` is the measured curve at the dense depth (usually 0) over the *total* batch: weights and
kernel switches live there, so it keeps every jag. `A(b, d) = T(b, d, 1) − W(b)` is what depth
adds to one sequence of `b` tokens (attention over its own context), measured on few batches and
interpolated over batch and depth. `φ` is 1 for one slot; for more it is fitted to rows with
separate contexts where there are any.

Times are milliseconds throughout; depths and batches are tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

NOISE_FLOOR = 0.02
"""The least relative spread that is believed: timers and clocks are not better than this."""


class Estimate(NamedTuple):
    """A predicted time in ms, its half interquartile range, and whether it was measured near."""

    value: float
    spread: float
    extrapolated: bool


@dataclass(frozen=True)
class StepTime:
    """One measured step: `batch` tokens in each of `slots` sequences that are `depth` deep.

    `ms` is the median over `repeats`, `spread_ms` half the interquartile range. `shared` tells
    that all sequences read one shared prompt (batched-bench `-pps`).
    """

    batch: int
    depth: int
    ms: float
    spread_ms: float
    repeats: int
    slots: int = 1
    shared: bool = True

    def __post_init__(self) -> None:
        if self.batch < 1 or self.slots < 1 or self.depth < 0 or self.repeats < 1:
            raise ValueError(f"not a step: {self}")
        if not (math.isfinite(self.ms) and self.ms > 0):
            raise ValueError(f"a step takes a positive, finite time: {self}")
        if not (math.isfinite(self.spread_ms) and self.spread_ms >= 0):
            raise ValueError(f"a spread is finite and not negative: {self}")

    @property
    def total(self) -> int:
        return self.batch * self.slots


class Holdout(NamedTuple):
    """A measured row that was predicted from the others; `error` is relative to `measured`."""

    batch: int
    depth: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return abs(self.predicted - self.measured) / self.measured


@dataclass(frozen=True, eq=False)
class _Curve:
    """Values over batch at one depth, ascending."""

    batch: Floats
    ms: Floats
    spread: Floats

    def at(self, batch: Floats) -> tuple[Floats, Floats, Bools]:
        """Value, spread and "beyond what was measured" at each of `batch`.

        Between two measured batches a jag may hide, so the spread there grows by half of
        their difference; beyond the last one the last slope goes on, and the spread with it.
        """
        value = np.interp(batch, self.batch, self.ms)
        spread = np.interp(batch, self.batch, self.spread)
        above = np.clip(np.searchsorted(self.batch, batch), 0, len(self.batch) - 1)
        below = np.clip(above - 1, 0, None)
        gap = (self.batch[above] != batch) & (batch < self.batch[-1]) & (batch > self.batch[0])
        spread = spread + np.where(gap, np.abs(self.ms[above] - self.ms[below]) / 2, 0.0)
        beyond = (batch > self.batch[-1]) | (batch < self.batch[0])
        growth = self._slope() * np.clip(batch - self.batch[-1], 0.0, None)
        return value + growth, spread + np.abs(growth), beyond

    def _slope(self) -> float:
        """Growth per token over the upper half of the curve, never negative."""
        if len(self.batch) < 2:
            return 0.0
        start = min(len(self.batch) // 2, len(self.batch) - 2)
        rise = float(self.ms[-1] - self.ms[start])
        return max(0.0, rise / float(self.batch[-1] - self.batch[start]))


@dataclass(frozen=True, eq=False)
class CostSurface:
    """Step times of one model on one machine; build it with `from_steps`.

    Values are pure functions of the measured `rows`, which are all that is stored.
    """

    rows: tuple[StepTime, ...]
    dense_depth: int
    _weights: _Curve
    _attention: tuple[tuple[int, _Curve], ...]
    _slot_factor: float
    _slot_spread: float

    @classmethod
    def from_steps(cls, steps: Iterable[StepTime]) -> CostSurface:
        """Build the surface. The depth with the most batches (the lowest of those) is dense.

        Rows with separate contexts (`shared=False`, more than one slot) calibrate what several
        contexts cost. Raises ValueError when no row describes a single sequence.
        """
        rows = tuple(sorted(steps, key=lambda row: (row.depth, row.total, row.slots, row.shared)))
        single = [row for row in rows if row.shared or row.slots == 1]
        if not single:
            raise ValueError("a cost surface needs at least one row of a single sequence")
        curves = {
            depth: _curve(list(group)) for depth, group in groupby(single, key=lambda r: r.depth)
        }
        dense = max(curves, key=lambda depth: (len(curves[depth].batch), -depth))
        weights = curves[dense]
        attention = tuple(
            (depth, _less(curve, weights) if depth != dense else _zero())
            for depth, curve in sorted(curves.items())
        )
        surface = cls(rows, dense, weights, attention, 1.0, 0.0)
        separate = [row for row in rows if not row.shared and row.slots > 1]
        factor, spread = surface._fit_slots(separate)
        return cls(rows, dense, weights, attention, factor, spread)

    @property
    def max_batch(self) -> int:
        """The largest measured total batch at the dense depth."""
        return int(self._weights.batch[-1])

    @property
    def depths(self) -> tuple[int, ...]:
        return tuple(depth for depth, _ in self._attention)

    def step(self, batch: int, depth: float = 0.0, slots: int = 1) -> Estimate:
        """Time of a step of `batch` tokens in each of `slots` slots at context `depth`."""
        value, spread, extrapolated = self.steps([batch], depth, slots)
        return Estimate(float(value[0]), float(spread[0]), bool(extrapolated[0]))

    def steps(
        self, batches: ArrayLike, depth: float = 0.0, slots: int = 1
    ) -> tuple[Floats, Floats, Bools]:
        """`step` for many batches at once: values, spreads, extrapolated, each `(len,)`."""
        batch = np.asarray(batches, dtype=np.float64)
        if not (math.isfinite(depth) and depth >= 0) or slots < 1 or np.any(batch < 1):
            raise ValueError("a step has at least one token and slot, and a depth of 0 or more")
        value, spread, beyond = self._weights.at(batch * slots)
        extra, extra_spread, extra_beyond = self._depth_effect(batch, depth)
        factor = self._slot_factor if slots > 1 else 1.0
        factor_spread = self._slot_spread if slots > 1 else 0.0
        value = np.maximum(value + factor * slots * extra, self._weights.ms.min() * 1e-3)
        spread = np.hypot(
            np.maximum(spread, NOISE_FLOOR * value),
            slots * np.hypot(factor * extra_spread, factor_spread * extra),
        )
        return value, spread, beyond | extra_beyond

    def holdout(self) -> list[Holdout]:
        """How well the sparse depths predict: each of their inner rows from all the others."""
        found = []
        for depth, curve in self._attention:
            if depth == self.dense_depth:
                continue
            for batch in curve.batch[1:-1]:
                at = int(batch)
                kept = [row for row in self.rows if (row.depth, row.total) != (depth, at)]
                measured = self.step(at, depth).value
                predicted = CostSurface.from_steps(kept).step(at, depth).value
                found.append(Holdout(at, depth, measured, predicted))
        return found

    def to_json(self) -> dict[str, Any]:
        """The measured rows as plain lists; `from_json` gives the surface back."""
        return {
            "columns": ["batch", "depth", "ms", "spread_ms", "repeats", "slots", "shared"],
            "rows": [
                [r.batch, r.depth, r.ms, r.spread_ms, r.repeats, r.slots, r.shared]
                for r in self.rows
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CostSurface:
        """Read what `to_json` gave. Raises ValueError on anything else."""
        try:
            return cls.from_steps(StepTime(*row) for row in data["rows"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a stored cost surface: {error}") from error

    def _depth_effect(self, batch: Floats, depth: float) -> tuple[Floats, Floats, Bools]:
        """What `depth` adds to one sequence over the dense depth, linear between depths.

        Beyond the deepest row the last slope goes on and is marked; with one depth only,
        nothing is known of depth: zero is added, and every other depth is marked.
        """
        depths = np.array(self.depths, dtype=np.float64)
        outside = bool(depth < depths[0] or depth > depths[-1])
        if len(depths) == 1:
            zero = np.zeros_like(batch)
            return zero, zero, np.full(batch.shape, outside)
        upper = int(np.clip(np.searchsorted(depths, depth), 1, len(depths) - 1))
        share = float((depth - depths[upper - 1]) / (depths[upper] - depths[upper - 1]))
        share = max(share, 0.0)
        low, low_spread, low_beyond = self._attention[upper - 1][1].at(batch)
        high, high_spread, high_beyond = self._attention[upper][1].at(batch)
        beyond = (low_beyond & (share < 1.0)) | (high_beyond & (share > 0.0)) | outside
        spread = np.hypot((1.0 - share) * low_spread, share * high_spread)
        return (1.0 - share) * low + share * high, spread, beyond

    def _fit_slots(self, rows: Sequence[StepTime]) -> tuple[float, float]:
        """φ and its spread: what separate contexts cost over `slots` times one context."""
        factors = []
        for row in rows:
            extra = row.slots * float(self._depth_effect(np.array([row.batch]), row.depth)[0][0])
            weights = float(self._weights.at(np.array([float(row.total)]))[0][0])
            if extra > NOISE_FLOOR * row.ms:
                factors.append(max(0.0, (row.ms - weights) / extra))
        if not factors:
            return 1.0, 0.0
        low, middle, high = np.quantile(factors, [0.25, 0.5, 0.75])
        return float(middle), float(high - low) / 2


def _curve(rows: list[StepTime]) -> _Curve:
    """One point a total batch; rows that repeat one are averaged by their repeats."""
    points = []
    for total, same in groupby(sorted(rows, key=lambda r: r.total), key=lambda r: r.total):
        group = list(same)
        weight = np.array([row.repeats for row in group], dtype=np.float64)
        ms = float(np.average([row.ms for row in group], weights=weight))
        spread = float(np.average([row.spread_ms for row in group], weights=weight))
        points.append((float(total), ms, spread))
    batch, ms_, spread_ = np.array(points, dtype=np.float64).T
    return _Curve(batch, ms_, spread_)


def _less(curve: _Curve, weights: _Curve) -> _Curve:
    """`curve` less `weights` at the same batches: the depth effect with both spreads."""
    ms, spread, _ = weights.at(curve.batch)
    return _Curve(curve.batch, curve.ms - ms, np.hypot(curve.spread, spread))


def _zero() -> _Curve:
    """No depth effect, whatever the batch."""
    zero = np.zeros(2)
    return _Curve(np.array([1.0, np.inf]), zero, zero)
