from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.bench.asking import Answer, diverged, paired_ratio, summary
from autospec.engine.observe import Timings


def answer(rate: float, text: str = "x", drafted: int = 0, accepted: int = 0) -> Answer:
    return Answer(text, Timings(10, 50.0, 64, 64_000 / rate, 0, drafted, accepted))


def test_medians_and_spread_come_from_prompts() -> None:
    result = summary([answer(rate, drafted=10, accepted=7) for rate in (10, 20, 30, 40, 1000)])
    assert result.tokens_per_second == pytest.approx(30)
    assert result.spread == pytest.approx(10)
    assert result.acceptance == pytest.approx(0.7)
    assert summary([answer(10), answer(20)]).acceptance is None


def test_pairs_cancel_what_differs_between_prompts() -> None:
    slow = [answer(rate) for rate in (10, 100, 1000)]
    fast = [answer(rate * 1.5) for rate in (10, 100, 1000)]
    ratio = paired_ratio(fast, slow, seed=1)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=2, max_size=12))
def test_the_interval_holds_the_median(rates: list[tuple[float, float]]) -> None:
    ratio = paired_ratio([answer(a) for a, _ in rates], [answer(b) for _, b in rates], seed=3)
    assert ratio.low is not None
    assert ratio.high is not None
    assert 0 < ratio.low <= ratio.value <= ratio.high


def test_answers_that_differ_are_counted() -> None:
    assert diverged([answer(1, "a"), answer(1, "b")], [answer(1, "a"), answer(1, "c")]) == 1
