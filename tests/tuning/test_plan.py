"""The decision: never slower than plain, honest about doubt, true to the measured."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_stopping import beliefs, costs

from autospec.tuning.cost import (
    CostSurface,
    DraftCost,
    StepTime,
    fit_overhead,
    round_cost,
    simple_cost,
)
from autospec.tuning.observations import Counters, Round
from autospec.tuning.plan import Measured, Pins, Trial, make_plan
from autospec.tuning.survival import SurvivalModel

CHEAP = simple_cost([20.0, 22.0, 24.0, 26.0, 28.0, 30.0], 1.0)
DEAR = simple_cost([20.0, 42.0, 64.0, 86.0, 108.0, 130.0], 10.0)


def seen(acceptance, rounds=400, n_max=5):
    """Counters of full drafts whose tokens were accepted at one rate."""
    positions = tuple(round(rounds * acceptance**i) for i in range(1, n_max + 1))
    counters = Counters(rounds, rounds * n_max, sum(positions), positions)
    return SurvivalModel.from_counters(counters, n_max)


def test_a_clear_gain_is_taken_and_said_with_its_figures():
    plan = make_plan(CHEAP, seen(0.8))
    assert plan.speculate
    assert not plan.unsure
    assert plan.rate > plan.plain_rate
    assert f"{plan.rate:.1f} tokens/s predicted against {plan.plain_rate:.1f} plain" in plan.reason
    assert plan.reason.startswith("drafting up to 5 tokens: ")


def test_where_nothing_beats_plain_it_is_off():
    plan = make_plan(DEAR, seen(0.8))
    assert not plan.speculate
    assert not plan.unsure
    assert plan.rate == plan.plain_rate
    assert plan.reason.startswith("off: ")
    assert "nothing beats plain" in plan.reason


def test_before_any_observation_it_may_try_but_says_so():
    plan = make_plan(CHEAP, SurvivalModel.prior(5))
    assert plan.speculate
    assert plan.unsure
    assert "before the first measurement" in plan.reason


def test_a_small_doubtful_gain_is_left_alone_and_a_large_one_is_taken():
    barely = simple_cost([20.0, 36.0, 60.0], 0.2)
    small, large = make_plan(barely, seen(0.82, 200, 2)), make_plan(CHEAP, seen(0.6, 6))
    assert 1.0 < small.scalar.ratio_vs_plain < 1.02
    assert not small.speculate
    assert small.unsure
    assert "too little to gain" in small.reason
    assert large.speculate


def test_costs_beyond_the_measured_are_said():
    target = CostSurface.from_steps([StepTime(1, 0, 50.0, 0.1, 3), StepTime(2, 0, 52.0, 0.1, 3)])
    plan = make_plan(round_cost(target, DraftCost("ngram"), n_max=5), seen(0.9))
    assert plan.unsure
    assert "beyond what was measured" in plan.reason


def test_pinned_values_are_kept_and_the_gate_still_stands():
    plan = make_plan(CHEAP, seen(0.8), pins=Pins(n_max=2, p_min=0.4))
    assert (plan.scalar.n_max, plan.scalar.p_min) == (2, 0.4)
    assert not make_plan(DEAR, seen(0.8), pins=Pins(n_max=2)).speculate


def test_a_pinned_decision_is_kept_against_the_gate():
    forced = make_plan(DEAR, seen(0.8), pins=Pins(speculate=True))
    assert forced.speculate
    assert "pinned" in forced.reason
    assert forced.rate < forced.plain_rate
    assert not make_plan(CHEAP, seen(0.8), pins=Pins(speculate=False)).speculate


def test_the_live_policy_is_planned_by_its_own_rate():
    model = SurvivalModel.from_rounds([Round((0.9, 0.9, 0.3, 0.9, 0.9), 2)] * 60, 5)
    live = make_plan(CHEAP, model, thresholds=True)
    assert live.speculate
    assert live.rate == live.policy.rate
    assert "on average" in live.reason


def test_no_room_for_a_draft_is_plain():
    plan = make_plan(simple_cost([20.0]), SurvivalModel.constant([]))
    assert not plan.speculate
    assert plan.scalar is None
    assert not make_plan(CHEAP, seen(0.8), pins=Pins(n_max=0)).speculate


@settings(max_examples=60, deadline=None)
@given(beliefs(3, 3), costs(3), st.booleans())
def test_a_plan_never_promises_less_than_plain_nor_any_nan(survival, cost, thresholds):
    plan = make_plan(cost, survival, thresholds=thresholds)
    assert plan.rate >= plan.plain_rate * (1 - 1e-12)
    assert all(math.isfinite(x) for x in (plan.rate, plan.plain_rate, plan.policy.rate))
    assert "nan" not in plan.reason
    assert plan.to_json()["speculate"] is plan.speculate


def test_seven_percent_acceptance_turns_speculation_off():
    """96 of 1378 drafted tokens accepted, with n_max left at 16 and p_min 0."""
    target = CostSurface.from_steps(StepTime(b, 0, 30.0 + 1.5 * b, 0.3, 3) for b in range(1, 18))
    draft = CostSurface.from_steps(StepTime(b, 0, 3.0 + 0.1 * b, 0.1, 3) for b in range(1, 18))
    counters = Counters(86, 1378, 96, (60, 22, 9, 4, 1) + (0,) * 11)
    survival = SurvivalModel.from_counters(counters, 16)
    cost = round_cost(target, DraftCost("autoregressive", draft), n_max=16)
    plan = make_plan(cost, survival)
    assert plan.scalar.n_max <= 2
    dearer = simple_cost(cost.verify_ms + 20.0, 3.1, plain_ms=cost.plain_ms)
    assert not make_plan(dearer, survival).speculate


def test_a_fixed_cost_a_round_eats_even_a_gain_of_nine_in_ten():
    """About 20 ms a round that no benchmark shows, on a target of 15 ms a token."""
    target = CostSurface.from_steps(StepTime(b, 0, 14.0 + b, 0.2, 3) for b in range(1, 5))
    drafter = CostSurface.from_steps(StepTime(b, 0, 5.0, 0.1, 3) for b in range(1, 5))
    draft = DraftCost("autoregressive", drafter)
    rounds = [
        Round((0.9,) * k, k, 5.0 * k, target.step(k + 1).value + 5.0 + 20.0) for k in (1, 2, 3) * 20
    ]
    benchmark = round_cost(target, draft, n_max=3)
    live = round_cost(target, draft, n_max=3, overhead=fit_overhead(rounds, target, draft))
    survival = seen(0.9, 300, 3)
    assert make_plan(benchmark, survival).scalar.ratio_vs_plain > 1.3
    assert make_plan(benchmark, survival).speculate
    assert not make_plan(live, survival).speculate


@pytest.mark.parametrize(
    ("plain", "tried", "best"),
    [
        (
            26.7,
            [
                Measured(3, 0, 0.0, 23.5),
                Measured(2, 0, 0.0, 29.6),
                Measured(2, 0, 0.6, 30.5),
                Measured(2, 0, 0.85, 29.5),
            ],
            Measured(2, 0, 0.6, 30.5),
        ),
        (
            23.5,
            [Measured(3, 0, 0.75, 19.0), Measured(3, 0, 0.0, 48.0)],
            Measured(3, 0, 0.0, 48.0),
        ),
        (26.7, [Measured(3, 0, 0.0, 23.5)], None),
        (26.7, [], None),
    ],
)
def test_of_measured_settings_the_fastest_is_taken_and_never_one_under_plain(plain, tried, best):
    plan = make_plan(CHEAP, seen(0.8), trial=Trial(plain, tuple(tried)))
    assert plan.speculate is (best is not None)
    assert plan.rate == (best.rate if best else plain)
    if best:
        chosen = plan.scalar
        assert (chosen.n_max, chosen.n_min, chosen.p_min) == (best.n_max, best.n_min, best.p_min)
        assert f"{best.rate:.1f} tokens/s measured against {plain:.1f} plain" in plan.reason
    else:
        assert plan.reason.startswith("off: ")


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_measured_rate_that_cannot_be_is_refused(rate):
    with pytest.raises(ValueError, match="finite and positive"):
        Trial(20.0, (Measured(1, 0, 0.0, rate),))


def test_the_draft_length_is_a_function_of_the_busy_slots():
    """Alone a long draft is right; sixteen busy slots take one token, and not the long draft."""
    total = {1: 30.0, 2: 31.0, 4: 33.0, 8: 37.0, 13: 42.0, 16: 410.0, 32: 380.0, 48: 1400.0}
    total |= {208: 6000.0}
    target = CostSurface.from_steps(StepTime(b, 0, ms, 1.0, 3) for b, ms in total.items())
    draft = CostSurface.from_steps(
        StepTime(b, 0, 1.0 + 0.05 * b, 0.05, 3) for b in (1, 2, 16, 32, 208)
    )
    survival = seen(0.85, 500, 12)
    plans = {
        slots: make_plan(
            round_cost(target, DraftCost("autoregressive", draft), n_max=12, slots=slots), survival
        )
        for slots in (1, 16)
    }
    assert plans[1].scalar.n_max >= 8
    assert plans[16].speculate
    assert plans[16].scalar.n_max == 1
    assert plans[16].plain_rate == pytest.approx(39, abs=1)
    assert plans[16].rate > 1.8 * plans[16].plain_rate
    assert np.isfinite(plans[16].rate)


def test_reasons_say_the_setting_and_the_gain_as_they_are():
    live = SurvivalModel.from_rounds([Round((0.9, 0.9, 0.3, 0.9, 0.9), 2)] * 60, 5)
    by_thresholds = make_plan(CHEAP, live, thresholds=True)
    assert by_thresholds.policy.limit == 2
    assert ", up to 2: " in by_thresholds.reason
    assert not by_thresholds.unsure
    one = make_plan(CHEAP, seen(0.8), pins=Pins(n_max=1))
    assert one.reason.startswith("drafting up to 1 token: ")
    assert f"({one.rate / one.plain_rate:.2f}x)" in one.reason
    measured = make_plan(CHEAP, seen(0.8), trial=Trial(20.0, (Measured(2, 0, 0.5, 30.0),)))
    assert "while each is at least 0.50 likely" in measured.reason
    assert "(1.50x)" in measured.reason
    assert measured.to_json()["scalar"]["n_max"] == 2


def test_what_was_measured_or_leaves_no_choice_is_sure():
    tried = (Measured(3, 0, 0.0, 23.5), Measured(1, 0, 0.0, 20.0))
    slower = make_plan(CHEAP, seen(0.8), trial=Trial(26.7, tried))
    assert not slower.unsure
    assert "23.5 tokens/s at best" in slower.reason
    assert not make_plan(CHEAP, seen(0.8), trial=Trial(20.0, (Measured(2, 0, 0.0, 30.0),))).unsure
    nothing = make_plan(CHEAP, seen(0.8), pins=Pins(n_max=0))
    assert not nothing.unsure
    assert nothing.to_json()["scalar"] is None
    assert make_plan(DEAR, SurvivalModel.prior(5)).unsure, "nothing was seen of the draft yet"
    equal = Trial(26.7, (Measured(1, 0, 0.0, 26.7),))
    assert equal.best is None, "as fast as plain decoding is no gain"
