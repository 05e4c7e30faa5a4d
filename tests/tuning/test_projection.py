"""The best scalar triple and the best vector of pull request 17034, against first principles."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_stopping import beliefs, costs

from autospec.tuning.cost import simple_cost
from autospec.tuning.costvector import NEVER, cost_vector, rate_of_costs
from autospec.tuning.projection import best_scalar, scalar_rate, scalar_rates
from autospec.tuning.shared import best_policy
from autospec.tuning.stopping import solve
from autospec.tuning.survival import SurvivalModel

CURVES = json.loads((Path(__file__).parents[1] / "data/seed_curves.json").read_text())["curves"]


def calibrated(acceptance, n_max):
    """A draft that reports exactly the one acceptance that it has."""
    one = np.array([acceptance])
    return SurvivalModel(one, np.tile(one, (n_max, 1)), np.ones((n_max, 1)), np.full(n_max, 1e6))


def played(cost, survival, n_max, n_min, p_min):
    """The engine's own rule over every history: what it keeps, pays and gets."""
    tokens = time = 0.0
    for history in itertools.product(range(len(survival.p)), repeat=n_max):
        probability = math.prod(survival.weight[i, m] for i, m in enumerate(history))
        k = next((i for i, m in enumerate(history) if survival.p[m] < p_min), n_max)
        paid = min(k + 1, n_max)
        k = k if k >= n_min else 0
        alive = np.cumprod([1.0] + [survival.q[i, m] for i, m in enumerate(history[:k])])
        again = sum((alive[a] - alive[a + 1]) * cost.replay_ms[a] for a in range(k))
        tokens += probability * alive.sum()
        time += probability * (cost.draft_ms[paid] + cost.verify_ms[k] + again)
    return 1000.0 * tokens / time


@settings(max_examples=80, deadline=None)
@given(
    beliefs(3, 3),
    costs(3, replay=True),
    st.integers(0, 3),
    st.integers(0, 3),
    st.floats(0, 1),
)
def test_a_triple_is_predicted_as_the_engine_plays_it(survival, cost, n_max, n_min, p_min):
    predicted = scalar_rate(cost, survival, n_max, n_min, p_min)
    assert predicted == pytest.approx(played(cost, survival, n_max, n_min, p_min), rel=1e-9)


@given(beliefs(5, 3), costs(5))
def test_no_triple_is_promised_more_than_the_vector(survival, cost):
    """Without n_min: throwing a draft away is an action that the vector does not have."""
    best = best_scalar(cost, survival, n_min=0)
    assert best.rate <= best_policy(cost, survival).rate * (1 + 1e-9)
    assert best.loss_vs_vector >= -1e-9


@given(beliefs(4, 3), costs(4))
def test_the_best_triple_is_the_best_of_its_grid(survival, cost):
    best = best_scalar(cost, survival)
    grid = [
        scalar_rate(cost, survival, n_max, n_min, step / 20)
        for n_max in range(1, 5)
        for n_min in range(min(n_max, 3) + 1)
        for step in range(20)
    ]
    assert best.rate == pytest.approx(max(grid), rel=1e-7)
    chosen = scalar_rate(cost, survival, best.n_max, best.n_min, best.p_min)
    assert chosen == pytest.approx(best.rate)
    assert best.rate_low <= best.rate <= best.rate_high


def test_what_is_pinned_stays():
    cost = simple_cost([10.0, 11.0, 12.0, 13.0, 14.0])
    survival = SurvivalModel.prior(4)
    pinned = best_scalar(cost, survival, n_max=2, n_min=1, p_min=0.83)
    assert (pinned.n_max, pinned.n_min, pinned.p_min) == (2, 1, 0.83)
    assert pinned.rate == pytest.approx(scalar_rate(cost, survival, 2, 1, 0.83))
    with pytest.raises(ValueError, match="outside"):
        best_scalar(cost, survival, n_max=5)


def test_the_interval_moves_costs_and_acceptance_together():
    cost = replace(simple_cost([10.0, 12.0, 14.0], 1.0), spread_ms=np.array([0.5, 0.7, 0.9]))
    survival = SurvivalModel.prior(2)
    best = best_scalar(cost, survival)
    triple = (best.n_max, best.n_min, best.p_min)
    worse = scalar_rate(cost.shifted(1.0), survival.shifted(-1.0), *triple)
    better = scalar_rate(cost.shifted(-1.0), survival.shifted(1.0), *triple)
    assert worse < best.rate < better
    assert (best.rate_low, best.rate_high) == (worse, better)
    assert best.ratio_vs_plain == pytest.approx(best.rate / 100.0)


def test_a_pinned_n_min_beyond_every_draft_is_still_an_answer():
    pinned = best_scalar(simple_cost([10.0, 11.0, 12.0]), SurvivalModel.prior(2), n_min=5)
    assert (pinned.n_max, pinned.n_min) == (2, 5)
    assert pinned.rate <= 100.0


def test_of_equals_the_simplest_is_taken():
    best = best_scalar(simple_cost([10.0, 10.0, 40.0]), SurvivalModel.constant([0.9, 0.0]))
    assert (best.n_max, best.n_min, best.p_min) == (1, 0, 0.0)


def test_throwing_short_drafts_away_pays_where_small_batches_are_dear():
    """A batch of 2 costs 3 of 1, one of 4 hardly more: drafts of one token are better dropped."""
    survival = SurvivalModel(
        p=np.array([0.2, 0.9]),
        q=np.tile([0.1, 0.98], (3, 1)),
        weight=np.tile([0.4, 0.6], (3, 1)),
        strength=np.full(3, 100.0),
    )
    cost = simple_cost([1.0, 3.0, 3.0, 3.05], 0.01)
    best = best_scalar(cost, survival)
    assert best.n_min == 3
    assert best.rate > best_scalar(cost, survival, n_min=0).rate


@settings(max_examples=60, deadline=None)
@given(beliefs(3, 2), costs(3))
def test_the_cost_vector_is_never_promised_more_than_ours(survival, cost):
    vector = cost_vector(cost, survival)
    assert vector.rate <= solve(cost, survival).rate * (1 + 1e-9)
    assert vector.rate == pytest.approx(rate_of_costs(cost, survival, vector.values))
    assert vector.values[0] == 1.0
    assert all(0 <= value <= NEVER for value in vector.values)
    assert len(vector.environment.split(",")) == 4


@settings(max_examples=60, deadline=None)
@given(beliefs(3, 2), costs(3, replay=True), st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_any_cost_vector_is_predicted_as_its_engine_plays_it(survival, cost, thresholds):
    tokens = time = 0.0
    for history in itertools.product(range(2), repeat=3):
        probability = math.prod(survival.weight[i, m] for i, m in enumerate(history))
        reported = np.cumprod([survival.p[m] for m in history])
        k = next((i for i in range(3) if reported[i] < thresholds[i]), 3)
        alive = np.cumprod([1.0] + [survival.q[i, m] for i, m in enumerate(history[:k])])
        again = sum((alive[a] - alive[a + 1]) * cost.replay_ms[a] for a in range(k))
        tokens += probability * alive.sum()
        time += probability * (cost.kept(k) + again)
    rate = rate_of_costs(cost, survival, (1.0, *thresholds))
    assert rate == pytest.approx(1000.0 * tokens / time, rel=1e-9)


@given(beliefs(1, 4), costs(1))
def test_for_one_token_the_cost_vector_is_the_best_of_all_cuts(survival, cost):
    cuts = [0.0, NEVER, *(float(p) for p in survival.p)]
    best = max(rate_of_costs(cost, survival, (1.0, cut)) for cut in cuts)
    assert cost_vector(cost, survival).rate == pytest.approx(best, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(beliefs(2, 2), costs(2))
def test_the_cost_vector_is_never_under_always_or_never_drafting(survival, cost):
    found = cost_vector(cost, survival).rate
    assert found >= rate_of_costs(cost, survival, (1.0, 0.0, 0.0)) * (1 - 1e-9)
    assert found >= rate_of_costs(cost, survival, (1.0, NEVER, NEVER)) * (1 - 1e-9)


def test_where_every_token_pays_or_none_does_the_cost_vector_says_so():
    survival = SurvivalModel.prior(3)
    free = cost_vector(simple_cost([10.0, 10.0, 10.0, 10.0]), survival)
    dear = cost_vector(simple_cost([10.0, 40.0, 80.0, 120.0], 1.0), survival)
    assert free.values == (1.0, 0.0, 0.0, 0.0)
    assert dear.values == (1.0, NEVER, NEVER, NEVER)
    assert dear.environment == "1,2,2,2"
    assert dear.rate == pytest.approx(1000 / 11)


def test_a_calibrated_draft_loses_nothing_to_the_cost_vector():
    p = np.linspace(0.05, 0.95, 10)
    survival = SurvivalModel(p, np.tile(p, (6, 1)), np.full((6, 10), 0.1), np.full(6, 50.0))
    cost = simple_cost([20.0, 23.0, 26.0, 30.0, 34.0, 38.0, 42.0], 2.0)
    vector = cost_vector(cost, survival, policy=solve(cost, survival))
    assert vector.loss_vs_vector == pytest.approx(0, abs=2e-3)


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve["name"])
@pytest.mark.parametrize("acceptance", [0.3, 0.5, 0.7, 0.9, 0.95])
@pytest.mark.parametrize("drafting", [0.0, 0.05])
def test_on_the_seed_curves_the_vector_loses_to_no_one(curve, acceptance, drafting):
    relative = curve["relative_cost"]
    verify = [y * (i + 1) for i, y in enumerate(relative)]
    cost = simple_cost(verify, drafting)
    survival = calibrated(acceptance, cost.n_max)
    best = best_policy(cost, survival)
    as_costs_go = tuple(relative)
    assert best.rate >= rate_of_costs(cost, survival, as_costs_go) * (1 - 1e-9)
    assert best.rate >= cost.plain_rate * (1 - 1e-9)
    assert best.rate >= scalar_rates(cost, survival).max() * (1 - 1e-9)


def test_the_old_rule_drafts_nothing_where_three_tokens_pay():
    curve = CURVES[0]["relative_cost"]
    cost = simple_cost([y * (i + 1) for i, y in enumerate(curve)])
    survival = calibrated(0.5, cost.n_max)
    old = rate_of_costs(cost, survival, tuple(curve))
    assert old == pytest.approx(cost.plain_rate)
    best = best_policy(cost, survival)
    assert best.mean_drafted == pytest.approx(3)
    assert best.rate / cost.plain_rate == pytest.approx(1.74, abs=0.005)


def test_the_old_rule_overshoots_where_acceptance_is_high():
    curve = CURVES[2]["relative_cost"]
    cost = simple_cost([y * (i + 1) for i, y in enumerate(curve)])
    survival = calibrated(0.9, cost.n_max)
    assert best_policy(cost, survival).mean_drafted == pytest.approx(8)
    assert best_policy(cost, survival).rate > rate_of_costs(cost, survival, tuple(curve))
