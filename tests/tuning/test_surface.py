"""The cost surface keeps jags, carries depth and load, and says where it guesses."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.tuning.cost import CostSurface, StepTime

DATA = Path(__file__).parents[1] / "data"


def row(batch, ms, depth=0, **more):
    return StepTime(batch, depth, ms, more.pop("spread", 0.1), more.pop("repeats", 3), **more)


JAGGED = [20, 30, 34, 36, 50, 52, 54, 56, 35, 38, 60, 62, 64, 66, 68, 70]


def dense():
    return [row(b, float(ms)) for b, ms in enumerate(JAGGED, start=1)]


def deep(depth, each=0.01, batches=(1, 4, 9, 16)):
    """Attention: `each` ms a token of context and per 16 tokens of batch, over the dense rows."""
    return [row(b, JAGGED[b - 1] + each * depth * (1 + b / 16), depth) for b in batches]


def test_measured_rows_come_back_with_every_jag():
    surface = CostSurface.from_steps(dense())
    assert [surface.step(b).value for b in range(1, 17)] == pytest.approx(JAGGED)
    assert surface.max_batch == 16
    assert not any(surface.step(b).extrapolated for b in range(1, 17))


def test_depth_is_added_without_smoothing_the_jags():
    surface = CostSurface.from_steps(dense() + deep(1000))
    assert surface.depths == (0, 1000)
    for batch in range(1, 17):
        expected = JAGGED[batch - 1] + 0.01 * 1000 * (1 + batch / 16)
        assert surface.step(batch, 1000).value == pytest.approx(expected)
    assert surface.step(9, 1000).value < surface.step(8, 1000).value


def test_between_depths_the_effect_is_shared():
    surface = CostSurface.from_steps(dense() + deep(1000) + deep(3000))
    assert surface.step(4, 2000).value == pytest.approx(36 + 0.01 * 2000 * 1.25)
    assert not surface.step(4, 2000).extrapolated
    assert surface.step(4, 500).value == pytest.approx(36 + 0.01 * 500 * 1.25)


def test_a_batch_left_out_by_the_budget_is_interpolated_with_more_spread():
    surface = CostSurface.from_steps([r for r in dense() if r.batch != 9])
    missing, measured = surface.step(9), surface.step(8)
    assert missing.value == pytest.approx((56 + 38) / 2)
    assert not missing.extrapolated
    assert missing.spread > 5 * measured.spread
    assert missing.spread >= (56 - 38) / 2


def test_beyond_the_measured_it_says_so_and_goes_on_rising():
    surface = CostSurface.from_steps(dense() + deep(1000))
    for far in (surface.step(24), surface.step(4, 2000), surface.step(9, slots=2)):
        assert far.extrapolated
    assert surface.step(24).value > surface.step(16).value
    assert surface.step(24).spread > surface.step(16).spread
    assert surface.step(4, 2000).value > surface.step(4, 1000).value


def test_one_depth_alone_knows_nothing_of_others():
    surface = CostSurface.from_steps(dense())
    assert surface.step(4, 512).extrapolated
    assert surface.step(4, 512).value == surface.step(4).value


def test_one_row_is_enough_to_answer():
    surface = CostSurface.from_steps([row(1, 20.0)])
    assert surface.step(1).value == 20.0
    assert surface.step(3).extrapolated


def test_busy_slots_pay_weights_by_the_total_batch_and_attention_each():
    surface = CostSurface.from_steps(dense() + deep(1000))
    expected = JAGGED[8 - 1] + 4 * 0.01 * 1000 * (1 + 2 / 16)
    assert surface.step(2, 1000, slots=4).value == pytest.approx(expected)
    assert surface.step(3, 0, slots=3).value == pytest.approx(JAGGED[9 - 1])


def test_rows_with_separate_contexts_correct_what_slots_cost():
    separate = [
        row(1, JAGGED[s - 1] + 0.7 * s * 0.01 * 1000 * (1 + 1 / 16), 1000, slots=s, shared=False)
        for s in (2, 4, 8)
    ]
    surface = CostSurface.from_steps(dense() + deep(1000) + separate)
    expected = JAGGED[8 - 1] + 0.7 * 4 * 0.01 * 1000 * (1 + 2 / 16)
    assert surface.step(2, 1000, slots=4).value == pytest.approx(expected)
    assert surface.step(4, 1000).value == pytest.approx(36 + 10 * 1.25)


def test_repeated_rows_are_averaged_by_their_repeats():
    surface = CostSurface.from_steps([row(1, 10.0, repeats=3), row(1, 14.0, repeats=1)])
    assert surface.step(1).value == pytest.approx(11.0)


def test_the_holdout_names_rows_that_the_others_would_get_wrong():
    spoiled = [row(r.batch, r.ms * (1.5 if r.batch == 4 else 1), r.depth) for r in deep(1000)]
    good = CostSurface.from_steps(dense() + deep(1000)).holdout()
    bad = CostSurface.from_steps(dense() + spoiled).holdout()
    assert [(h.batch, h.depth) for h in good] == [(4, 1000), (9, 1000)]
    assert max(h.error for h in good) < 0.02
    assert max(h.error for h in bad) > 0.2


def test_a_surface_survives_storage():
    surface = CostSurface.from_steps(dense() + deep(1000))
    again = CostSurface.from_json(json.loads(json.dumps(surface.to_json())))
    assert again.rows == surface.rows
    assert again.step(5, 300, 2) == surface.step(5, 300, 2)


@pytest.mark.parametrize(
    "data", [{}, {"rows": []}, {"rows": [[1, 2]]}, {"rows": [[0, 0, 1.0, 0.0, 1, 1, True]]}]
)
def test_junk_is_not_a_surface(data):
    with pytest.raises(ValueError, match=r"surface|step"):
        CostSurface.from_json(data)


@pytest.mark.parametrize("ms", [0.0, -1.0, math.nan, math.inf])
def test_a_step_takes_a_positive_finite_time(ms):
    with pytest.raises(ValueError, match="positive, finite"):
        row(1, ms)


steps = st.builds(
    StepTime,
    batch=st.integers(1, 64),
    depth=st.sampled_from([0, 512, 4096]),
    ms=st.floats(1e-3, 1e5),
    spread_ms=st.floats(0, 1e3),
    repeats=st.integers(1, 9),
    slots=st.integers(1, 8),
    shared=st.booleans(),
)


@given(
    st.lists(steps, min_size=1, max_size=25),
    st.integers(1, 200),
    st.floats(0, 1e5),
    st.integers(1, 16),
)
def test_any_rows_give_positive_times(rows, batch, depth, slots):
    if not any(r.shared or r.slots == 1 for r in rows):
        with pytest.raises(ValueError, match="single sequence"):
            CostSurface.from_steps(rows)
        return
    value, spread, _ = CostSurface.from_steps(rows).step(batch, depth, slots)
    assert math.isfinite(value)
    assert value > 0
    assert math.isfinite(spread)
    assert spread >= 0


def test_a_recorded_benchmark_is_read_as_it_was_measured():
    text = (DATA / "batched_bench_pps_not_unified.jsonl").read_text().replace("-nan", "null")
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    measured = {(r["pl"], r["pp"]): 1000 * r["t_tg"] / r["tg"] for r in rows}
    surface = CostSurface.from_steps(
        StepTime(batch, depth, ms, 0.0, 1) for (batch, depth), ms in measured.items()
    )
    assert surface.depths == (0, 512)
    for (batch, depth), ms in measured.items():
        assert surface.step(batch, depth).value == pytest.approx(ms)
    assert np.median([h.error for h in surface.holdout()]) < 0.1


def test_two_batches_are_enough_to_go_on_with_their_slope():
    surface = CostSurface.from_steps(StepTime(b, 0, 10.0 * b, 0.1, 3) for b in (1, 2))
    step = surface.step(4)
    assert step.value == pytest.approx(40.0)
    assert step.extrapolated
    assert step.spread >= 20.0


@pytest.mark.parametrize(
    ("batch", "depth", "beyond"),
    [(10, 512, False), (10, 1024, True), (10, 768, True), (3, 768, False), (10, 0, False)],
)
def test_a_depth_that_was_measured_for_small_batches_only_is_not_known_for_large_ones(
    batch, depth, beyond
):
    rows = [(b, 0, 10.0 + b) for b in range(1, 17)]
    rows += [(b, 512, 12.0 + b) for b in (1, 4, 16)] + [(b, 1024, 14.0 + b) for b in (1, 4)]
    surface = CostSurface.from_steps(StepTime(b, d, ms, 0.1, 3) for b, d, ms in rows)
    assert surface.step(batch, depth).extrapolated is beyond
