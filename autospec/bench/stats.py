"""Medians, totals and paired ratios with bootstrap intervals.

All functions take milliseconds a token, one value a row of a comparison. A row asks every arm
the same, so rows are what is resampled, jointly for a ratio: what one row has of its own (its
prompt, the minute it ran in) cancels. Intervals are 95 % percentile intervals over `RESAMPLES`
resamplings (Efron); on fewer than two rows there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 4000
_CONFIDENCE = (2.5, 97.5)


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval; `low` and `high` are None where one row is all there is."""

    value: float
    low: float | None
    high: float | None

    @property
    def width(self) -> float | None:
        """Half the interval, relative to the value."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2 / self.value


def typical_rate(ms: Sequence[float], *, seed: int) -> Interval:
    """Tokens/s of the median row."""
    return _interval([ms], lambda picked: 1000 / np.median(picked[0], axis=-1), seed)


def overall_rate(ms: Sequence[float], *, seed: int) -> Interval:
    """Tokens/s over all rows, each worth as many tokens as the others."""
    return _interval([ms], lambda picked: 1000 / np.mean(picked[0], axis=-1), seed)


def typical_ratio(one: Sequence[float], other: Sequence[float], *, seed: int) -> Interval:
    """How much faster `one` is than `other`: the median of the rows' ratios."""
    return _interval([one, other], lambda p: np.median(p[1] / p[0], axis=-1), seed)


def overall_ratio(one: Sequence[float], other: Sequence[float], *, seed: int) -> Interval:
    """How much faster `one` is than `other` over all rows: time against time.

    For a mixture, where the median of the rows' ratios would hide whole kinds of text.
    """
    return _interval([one, other], lambda p: np.mean(p[1], axis=-1) / np.mean(p[0], axis=-1), seed)


def mean_ratio(one: Sequence[float], other: Sequence[float], *, seed: int) -> Interval:
    """How much faster `one` is than `other`: the geometric mean of the rows' ratios.

    Every row counts alike, whatever its text and its load.
    """
    return _interval(
        [one, other], lambda p: np.exp(np.mean(np.log(p[1]) - np.log(p[0]), axis=-1)), seed
    )


def median_error(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Median of |predicted − measured| / measured; None without a pair."""
    if not measured:
        return None
    p, m = np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)
    return float(np.median(np.abs(p - m) / m))


def _interval(
    columns: Sequence[Sequence[float]], statistic: Callable[[list[Floats]], Floats], seed: int
) -> Interval:
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    rows = len(arrays[0])
    if rows == 0 or any(len(array) != rows for array in arrays):
        raise ValueError("columns of equal length, and at least one row")
    if not all(np.all(np.isfinite(array) & (array > 0)) for array in arrays):
        raise ValueError("times are finite and positive")
    value = float(statistic(arrays))
    if rows == 1:
        return Interval(value, None, None)
    picks = np.random.default_rng(seed).integers(0, rows, (RESAMPLES, rows))
    low, high = np.percentile(statistic([array[picks] for array in arrays]), _CONFIDENCE)
    return Interval(value, min(float(low), value), max(float(high), value))
