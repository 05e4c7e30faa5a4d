"""Intervals and paired ratios: what they hold, what they cancel, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.bench.stats import (
    mean_ratio,
    median_error,
    overall_rate,
    overall_ratio,
    typical_rate,
    typical_ratio,
)

MS = st.floats(0.01, 1e5)
ROWS = st.lists(st.tuples(MS, MS), min_size=2, max_size=12)


@given(ROWS)
def test_intervals_hold_their_figure(rows: list[tuple[float, float]]) -> None:
    one, other = [a for a, _ in rows], [b for _, b in rows]
    for found in (
        typical_rate(one, seed=1),
        overall_rate(one, seed=1),
        typical_ratio(one, other, seed=1),
        overall_ratio(one, other, seed=1),
        mean_ratio(one, other, seed=1),
    ):
        assert found.low is not None
        assert found.high is not None
        assert 0 < found.low <= found.value <= found.high
        assert found.width is not None
        assert found.width >= 0


@given(st.lists(MS, min_size=2, max_size=12), st.floats(0.1, 10))
def test_what_a_row_has_of_its_own_cancels(ms: list[float], factor: float) -> None:
    faster = [one / factor for one in ms]
    for ratio in (typical_ratio, overall_ratio, mean_ratio):
        found = ratio(faster, ms, seed=2)
        assert (found.low, found.value, found.high) == pytest.approx((factor,) * 3)


def test_the_whole_time_decides_about_a_mixture() -> None:
    """Twice as fast on the slow text outweighs a little slower on two quick ones."""
    plain, tuned = [100.0, 10.0, 10.0], [50.0, 11.0, 11.0]
    assert typical_ratio(tuned, plain, seed=3).value < 1.0
    assert overall_ratio(tuned, plain, seed=3).value == pytest.approx(120 / 72)


def test_every_row_counts_alike_in_a_mean_of_ratios() -> None:
    plain, tuned = [100.0, 10.0], [50.0, 20.0]
    assert mean_ratio(tuned, plain, seed=3).value == pytest.approx(1.0)
    assert mean_ratio(plain, tuned, seed=3).value == pytest.approx(1.0)


def test_one_row_has_no_interval() -> None:
    found = typical_rate([20.0], seed=4)
    assert (found.value, found.low, found.high, found.width) == (50.0, None, None, None)


def test_ninety_five_percent_of_intervals_hold_the_truth() -> None:
    random = np.random.default_rng(5)
    inside = 0
    for trial in range(200):
        plain = random.lognormal(0, 0.5, 15)
        tuned = plain / 1.3 * random.lognormal(0, 0.1, 15)
        found = typical_ratio(tuned.tolist(), plain.tolist(), seed=trial)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 1.3 <= found.high
    assert inside >= 180


@pytest.mark.parametrize("rows", [[], [0.0], [-1.0], [float("nan")], [float("inf"), 1.0]])
def test_times_that_cannot_be_are_refused(rows: list[float]) -> None:
    with pytest.raises(ValueError, match=r"times|row"):
        typical_rate(rows, seed=6)
    with pytest.raises(ValueError, match="equal length"):
        typical_ratio([1.0], [1.0, 2.0], seed=6)


def test_errors_are_relative_to_what_was_measured() -> None:
    assert median_error([110, 80, 100], [100, 100, 100]) == pytest.approx(0.10)
    assert median_error([], []) is None
