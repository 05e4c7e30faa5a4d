from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from autospec.calibration.grid import (
    STEPS,
    Job,
    default_depths,
    every_batch,
    refining_batches,
    slot_batches,
)


@given(st.integers(1, 65))
def test_refining_measures_every_batch_once_and_both_ends_first(largest: int) -> None:
    order = refining_batches(largest)
    assert sorted(order) == list(range(1, largest + 1))
    assert set(order[:2]) == {1, largest}


@given(st.integers(9, 65), st.integers(3, 9))
def test_a_run_cut_short_leaves_no_gap_much_wider_than_the_others(largest: int, rows: int) -> None:
    measured = sorted(refining_batches(largest)[:rows])
    widest = max(b - a for a, b in itertools.pairwise(measured))
    assert widest <= 2 * (largest - 1) / (2 ** ((rows - 1).bit_length() - 1)) + 1


def test_slots_are_dense_to_16_and_end_at_the_largest_total() -> None:
    assert slot_batches(3, 4) == (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
    assert slot_batches(16, 1) == ()
    assert slot_batches(16, 4)[-1] == 68
    assert 5 in slot_batches(3, 2)


@given(st.integers(1, 64), st.integers(1, 64))
def test_slot_batches_rise_beyond_what_one_slot_needs(max_draft: int, slots: int) -> None:
    totals = slot_batches(max_draft, slots)
    assert list(totals) == sorted(set(totals))
    assert all(max_draft + 1 < total <= slots * (max_draft + 1) for total in totals)


@given(st.integers(0, 10**6))
def test_default_depths_start_at_0_and_fit_the_context(context: int) -> None:
    depths = default_depths(context)
    assert depths[0] == 0
    assert list(depths) == sorted(set(depths))
    assert depths[-1] <= max(0, context - 256)


@given(st.integers(0, 5000), st.integers(1, 64), st.integers(1, 5), st.booleans())
def test_the_context_of_a_job_holds_its_largest_row(
    depth: int, largest: int, passes: int, shared: bool
) -> None:
    job = Job("target", depth, every_batch(largest), passes, shared)
    widest = largest + 1
    prompts = depth if shared else depth * widest
    assert job.context >= prompts + widest * STEPS
    assert job.context % 256 == 0
