from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.tuning.observations import Counters, Round
from autospec.tuning.survival import SurvivalModel
from autospec.tuning.tilt import tilted

K = 6


def rounds(acceptance: float, seed: int, count: int = 300) -> list[Round]:
    """Rounds whose tokens are accepted with the chance that their p reports, scaled."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        p = random.uniform(0.3, 1.0, K)
        hit = random.random(K) < acceptance * p
        made.append(Round(tuple(p), int(np.cumprod(hit).sum())))
    return made


def counted(recorded: list[Round], p_min: float, n_min: int = 0) -> Counters:
    """What the engine would count for `recorded` if it cut drafts at `p_min`."""
    drafts = drafted = 0
    per_position = np.zeros(K, dtype=int)
    for one in recorded:
        below = [i for i, p in enumerate(one.p) if p < p_min]
        length = below[0] if below else K
        if length < max(n_min, 1):
            continue
        drafts, drafted = drafts + 1, drafted + length
        per_position[: min(length, one.accepted)] += 1
    return Counters(drafts, drafted, int(per_position.sum()), tuple(map(int, per_position)))


@pytest.mark.parametrize("n_min", [0, 2])
@pytest.mark.parametrize("p_min", [0.0, 0.5])
def test_counters_of_harder_text_bring_acceptance_down_to_what_it_is(
    p_min: float, n_min: int
) -> None:
    believed = SurvivalModel.from_rounds(rounds(0.95, seed=1), K)
    hard = rounds(0.6, seed=2, count=2000)
    truth = SurvivalModel.from_rounds(hard, K)
    moved = tilted(believed, counted(hard, p_min, n_min), n_max=K, n_min=n_min, p_min=p_min)
    assert abs(moved.means[0] - truth.means[0]) < 0.05
    assert abs(believed.means[0] - truth.means[0]) > 0.15


def test_no_drafts_change_nothing() -> None:
    believed = SurvivalModel.from_rounds(rounds(0.9, seed=1), K)
    assert tilted(believed, Counters(0, 0, 0, ()), n_max=K) is believed


def test_a_few_drafts_move_the_belief_a_little_and_many_move_it_all_the_way() -> None:
    believed = SurvivalModel.from_rounds(rounds(0.9, seed=1), K)
    few = tilted(believed, Counters(2, 12, 0, (0,) * K), n_max=K)
    many = tilted(believed, Counters(2000, 12000, 0, (0,) * K), n_max=K)
    assert many.means[0] < 0.05 < few.means[0] < believed.means[0]


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="no more drafts"):
        tilted(SurvivalModel.prior(K), Counters(5, 30, 9, (6, 3, 0, 0, 0, 0)), n_max=K)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=K + 3),
    st.integers(0, K),
    st.floats(0, 1),
)
def test_whatever_is_counted_the_belief_stays_a_belief(
    counts: list[int], n_min: int, p_min: float
) -> None:
    drafts, *per_position = sorted(counts, reverse=True)
    seen = Counters(drafts, drafts * K, sum(per_position), tuple(per_position))
    moved = tilted(SurvivalModel.prior(K), seen, n_max=K, n_min=n_min, p_min=p_min)
    assert np.all((moved.q > 0) & (moved.q < 1))
    assert moved.observed == drafts
