"""What a round costs, by the kind of draft, and what live rounds teach about it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.tuning.cost import (
    CostSurface,
    DraftCost,
    RoundCost,
    RoundOverhead,
    StepTime,
    fit_overhead,
    round_cost,
    simple_cost,
)
from autospec.tuning.observations import Round

TARGET = CostSurface.from_steps(StepTime(b, 0, 50.0 + 5 * b, 1.0, 3) for b in range(1, 14))
DRAFT = CostSurface.from_steps(StepTime(b, 0, 5.0 + b, 0.2, 3) for b in range(1, 14))


def test_an_autoregressive_round_pays_every_step_and_the_batch_twice():
    cost = round_cost(TARGET, DraftCost("autoregressive", DRAFT), n_max=4)
    assert cost.plain_ms == pytest.approx(55)
    assert cost.draft_ms == pytest.approx([0, 6, 12, 18, 24])
    assert cost.verify_ms == pytest.approx([55 + 6, 60 + 7, 65 + 8, 70 + 9, 75 + 10])
    assert cost.kept(2) == pytest.approx(18 + 73)
    assert cost.kept(4) == pytest.approx(24 + 85)
    assert not cost.extrapolated


def test_never_drafting_with_a_draft_loaded_is_slower_than_plain():
    cost = round_cost(TARGET, DraftCost("autoregressive", DRAFT), n_max=4)
    assert cost.zero_rate < cost.plain_rate


def test_a_block_draft_has_paid_for_all_with_its_first_step():
    cost = round_cost(TARGET, DraftCost("block", DRAFT), n_max=4)
    assert cost.draft_ms == pytest.approx([0, 9, 9, 9, 9])


@pytest.mark.parametrize("kind", ["ngram", "none"])
def test_a_draft_without_a_model_costs_nothing(kind):
    cost = round_cost(TARGET, DraftCost(kind), n_max=3)
    assert not cost.draft_ms.any()
    assert cost.zero_rate == pytest.approx(cost.plain_rate)


def test_an_unmeasured_draft_is_marked():
    assert round_cost(TARGET, DraftCost("head"), n_max=3).extrapolated
    assert round_cost(TARGET, DraftCost("autoregressive", DRAFT), n_max=20).extrapolated


def test_busy_slots_share_a_round_and_all_of_them_count():
    cost = round_cost(TARGET, DraftCost("autoregressive", DRAFT), n_max=2, slots=4)
    assert cost.plain_ms == pytest.approx(50 + 5 * 4)
    assert cost.plain_rate == pytest.approx(4000 / 70)
    assert cost.verify_ms[2] == pytest.approx(50 + 5 * 12 + 5 + 12)


def test_a_target_that_cannot_drop_a_suffix_pays_the_accepted_tokens_again():
    cost = round_cost(TARGET, DraftCost("ngram"), n_max=3, restore_ms=7.0)
    assert cost.replay_ms == pytest.approx([7 + 55, 7 + 60, 7 + 65, 7 + 70])


def live(count, *, factor=1.0, fixed=0.0, token=0.0, noise=0.0, seed=0, outliers=0):
    random = np.random.default_rng(seed)
    draft = DraftCost("autoregressive", DRAFT)
    rounds = []
    for n in range(count):
        k = int(random.choice([2, 5, 8, 12]))
        verify = TARGET.step(k + 1).value + float(draft.reevaluations([k + 1])[0][0])
        verify += fixed + token * (k + 1) + random.normal(0, noise)
        drafting = factor * draft.drafting(k).value + random.normal(0, noise / 10)
        slow = 10.0 if n < outliers else 1.0
        rounds.append(Round((0.5,) * k, 0, drafting * slow, verify * slow))
    return rounds


def test_live_rounds_teach_what_the_benchmark_leaves_out():
    rounds = live(200, factor=1.3, fixed=20.0, token=1.5, noise=3.0)
    learned = fit_overhead(rounds, TARGET, DraftCost("autoregressive", DRAFT))
    assert learned.draft_factor == pytest.approx(1.3, rel=0.02)
    assert learned.verify_fixed_ms == pytest.approx(20, abs=2.5)
    assert learned.verify_token_ms == pytest.approx(1.5, abs=0.3)
    assert 1.0 < learned.verify_spread_ms < 4.0
    cost = round_cost(TARGET, DraftCost("autoregressive", DRAFT), n_max=4, overhead=learned)
    assert cost.verify_ms[4] == pytest.approx(85 + 20 + 1.5 * 5, abs=2)


def test_a_few_stalled_rounds_change_nothing():
    clean = fit_overhead(live(100, fixed=20.0), TARGET, DraftCost("autoregressive", DRAFT))
    rounds = live(100, fixed=20.0, outliers=10)
    learned = fit_overhead(rounds, TARGET, DraftCost("autoregressive", DRAFT))
    assert learned.verify_fixed_ms == pytest.approx(clean.verify_fixed_ms, abs=0.5)
    assert learned.draft_factor == pytest.approx(clean.draft_factor, rel=0.01)


def test_one_batch_size_teaches_what_each_verified_token_costs():
    rounds = [Round((0.5,) * 4, 1, 30.0, 100.0)] * 5 + [Round((0.5,), 1, 30.0, 20.0)] * 3
    learned = fit_overhead(rounds, TARGET, DraftCost("none"))
    residual = 100.0 - TARGET.step(5).value
    assert learned.verify_fixed_ms == 0
    assert learned.verify_token_ms == pytest.approx(residual / 5)


@pytest.mark.parametrize("disturbed", [0.94, 1.06])
def test_a_disturbed_step_of_the_benchmark_does_not_tilt_all_others(disturbed):
    """Rounds of 6, and some of 4: the difference between two steps is what the slope is made of."""
    steps = [StepTime(b, 0, 50.0 + 5 * b, 1.0, 3) for b in range(1, 18) if b != 5]
    target = CostSurface.from_steps([*steps, StepTime(5, 0, disturbed * 75.0, 1.0, 3)])
    rounds = [Round((0.5,) * 6, 1, 30.0, 95.0)] * 30 + [Round((0.5,) * 4, 1, 30.0, 85.0)] * 8
    learned = fit_overhead(rounds, target, DraftCost("none"))
    assert 0.0 <= learned.verify_token_ms <= 10.0 / 7 + 1e-9
    verify = round_cost(target, DraftCost("none"), n_max=16, overhead=learned).verify_ms
    assert verify[16] == pytest.approx(50 + 5 * 17 + 10, rel=0.12)
    assert verify[0] == pytest.approx(55 + 10, rel=0.15)


def test_a_round_is_never_cheaper_than_its_steps_by_more_than_their_spread():
    cheap = RoundOverhead(verify_fixed_ms=-1000.0)
    cost = round_cost(TARGET, DraftCost("none"), n_max=3, overhead=cheap)
    _, spread, _ = TARGET.steps([1, 2, 3, 4])
    bare = round_cost(TARGET, DraftCost("none"), n_max=3)
    assert np.allclose(cost.verify_ms, bare.verify_ms - spread)


def test_rounds_without_times_teach_nothing():
    assert fit_overhead([Round((0.5,), 1)], TARGET, DraftCost("none")) == RoundOverhead()
    assert fit_overhead([], TARGET, DraftCost("none")) == RoundOverhead()


@given(
    st.lists(
        st.builds(
            Round,
            p=st.integers(0, 12).map(lambda k: (0.5,) * k),
            accepted=st.just(0),
            draft_ms=st.none() | st.floats(0, 1e4),
            verify_ms=st.none() | st.floats(0, 1e4),
        ),
        max_size=20,
    )
)
def test_any_timed_rounds_leave_a_cost_that_can_be_solved(rounds):
    draft = DraftCost("autoregressive", DRAFT)
    learned = fit_overhead(rounds, TARGET, draft)
    cost = round_cost(TARGET, draft, n_max=6, overhead=learned)
    assert np.all(np.isfinite(cost.verify_ms))
    assert np.all(cost.verify_ms > 0)


@pytest.mark.parametrize(
    "change",
    [
        {"plain_ms": 0.0},
        {"verify_ms": np.array([1.0, np.nan])},
        {"verify_ms": np.array([1.0, 0.0])},
        {"draft_ms": np.array([1.0, 2.0])},
        {"draft_ms": np.array([0.0, -1.0])},
        {"draft_ms": np.zeros(3)},
        {"slots": 0},
    ],
)
def test_costs_that_cannot_be_are_refused(change):
    good = {
        "plain_ms": 1.0,
        "draft_ms": np.array([0.0, 1.0]),
        "verify_ms": np.array([1.0, 2.0]),
        "spread_ms": np.zeros(2),
        "replay_ms": np.zeros(2),
    }
    with pytest.raises(ValueError, match=r"cost|plain|draft|verif"):
        RoundCost(**(good | change))


def test_a_smaller_n_max_keeps_the_costs_it_has():
    cost = simple_cost([10.0, 12.0, 15.0], 2.0)
    assert cost.truncated(1).draft_ms == pytest.approx([0, 2])
    with pytest.raises(ValueError, match="outside"):
        cost.truncated(3)


@pytest.mark.parametrize("spreads", [-1.0, 0.0, 1.0])
def test_a_shared_batch_moves_and_shrinks_with_the_round_it_belongs_to(spreads):
    """Slots that keep the same k are slots that stop together, whatever else is changed."""
    wide = CostSurface.from_steps(
        StepTime(batch, 0, 20.0 + 3.0 * batch, 1.0, 3) for batch in range(1, 13)
    )
    cost = round_cost(wide, DraftCost("autoregressive", DRAFT), n_max=3, slots=3)
    for one in (cost.shifted(spreads), cost.shifted(spreads).truncated(2)):
        assert one.shared.verify_ms[::3] == pytest.approx(one.verify_ms)
        assert one.shared.draft_ms[-1] == pytest.approx(one.draft_ms[1])
        apart = one.shared.mean_ms(np.eye(one.n_max + 1), np.tri(one.n_max + 1, one.n_max, k=-1))
        assert apart == pytest.approx(one.draft_ms + one.verify_ms)


def test_a_shared_batch_of_another_size_is_refused():
    cost = round_cost(TARGET, DraftCost("autoregressive", DRAFT), n_max=2, slots=2)
    with pytest.raises(ValueError, match="shared batch"):
        replace(
            cost,
            verify_ms=cost.verify_ms[:2],
            draft_ms=cost.draft_ms[:2],
            spread_ms=cost.spread_ms[:2],
            replay_ms=cost.replay_ms[:2],
        )
    with pytest.raises(ValueError, match="shared batch"):
        replace(cost, slots=3)
