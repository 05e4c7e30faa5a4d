"""The optimal rule against brute force, closed forms, and the bounds that theory gives."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autospec.tuning import stopping
from autospec.tuning.chain import Chain
from autospec.tuning.cost import RoundCost, simple_cost
from autospec.tuning.shared import best_policy
from autospec.tuning.stopping import solve, solve_table
from autospec.tuning.survival import SurvivalModel

ms = st.floats(0.1, 100.0)
chance = st.floats(0.0, 1.0)


@st.composite
def beliefs(draw, positions, levels):
    p = np.sort(draw(st.lists(chance, min_size=levels, max_size=levels)))
    q = [draw(st.lists(chance, min_size=levels, max_size=levels)) for _ in range(positions)]
    raw = [
        draw(st.lists(st.floats(0.05, 1.0), min_size=levels, max_size=levels))
        for _ in range(positions)
    ]
    weight = np.array(raw) / np.sum(raw, axis=1, keepdims=True)
    return SurvivalModel(p, np.array(q), weight, np.full(positions, 10.0))


@st.composite
def costs(draw, positions, *, replay=False):
    steps = draw(st.lists(st.floats(0.0, 20.0), min_size=positions, max_size=positions))
    verify = draw(st.lists(ms, min_size=positions + 1, max_size=positions + 1))
    again = draw(st.lists(ms, min_size=positions + 1, max_size=positions + 1))
    return RoundCost(
        plain_ms=draw(ms),
        draft_ms=np.concatenate([[0.0], np.cumsum(steps)]),
        verify_ms=np.array(verify),
        spread_ms=np.zeros(positions + 1),
        replay_ms=np.array(again) if replay else np.zeros(positions + 1),
    )


def rounds_of(cost, survival, includes):
    """E[N] and E[C] of the rule `includes(levels seen)`, over every history."""
    tokens, time = 0.0, 0.0
    n_max, levels = cost.n_max, range(len(survival.p))
    for history in itertools.product(levels, repeat=n_max):
        probability = math.prod(survival.weight[i, m] for i, m in enumerate(history))
        k, steps = 0, min(1, n_max)
        while k < n_max and includes(history[: k + 1]):
            k += 1
            steps = min(k + 1, n_max)
        alive = np.cumprod([1.0] + [survival.q[i, m] for i, m in enumerate(history[:k])])
        replays = sum((alive[a] - alive[a + 1]) * cost.replay_ms[a] for a in range(k))
        tokens += probability * alive.sum()
        time += probability * (cost.draft_ms[steps] + cost.verify_ms[k] + replays)
    return tokens, time


def brute_force(cost, survival):
    """The best rate of every rule there is, tokens/s: one decision for each history."""
    levels = range(len(survival.p))
    histories = [
        seen
        for length in range(1, cost.n_max + 1)
        for seen in itertools.product(levels, repeat=length)
    ]
    best = cost.zero_rate
    for decisions in itertools.product([False, True], repeat=len(histories)):
        rule = dict(zip(histories, decisions, strict=True))
        tokens, time = rounds_of(cost, survival, rule.__getitem__)
        best = max(best, 1000.0 * tokens / time)
    return best


def rate_of_thresholds(cost, survival, thresholds):
    def includes(seen):
        s = math.prod(float(survival.q[i, m]) for i, m in enumerate(seen))
        return s >= thresholds[len(seen) - 1] * (1 - 1e-12)

    tokens, time = rounds_of(cost, survival, includes)
    return 1000.0 * tokens / time


@settings(max_examples=60, deadline=None)
@given(beliefs(2, 2), costs(2))
def test_no_stopping_rule_is_better(survival, cost):
    policy = solve(cost, survival)
    assert policy.rate == pytest.approx(brute_force(cost, survival), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(beliefs(4, 3), costs(4))
def test_no_rule_over_whole_histories_is_better(survival, cost):
    assert solve(cost, survival).rate == pytest.approx(brute_force_tree(cost, survival), rel=1e-9)


def brute_force_tree(cost, survival):
    """The best rate over rules that may remember the whole history, by recursion over it."""

    def value(rate, i, alive):
        if i == cost.n_max:
            return -rate * (cost.draft_ms[i] + cost.verify_ms[i])
        stop = -rate * (cost.draft_ms[i + 1] + cost.verify_ms[i])
        total = 0.0
        for weight, q in zip(survival.weight[i], survival.q[i], strict=True):
            total += weight * max(stop, alive * q + value(rate, i + 1, alive * q))
        return total

    low, high = cost.zero_rate / 1000.0, 1000.0
    while high - low > 1e-13 * high:
        middle = math.sqrt(low * high)
        if middle in (low, high):
            break
        low, high = (middle, high) if 1.0 + value(middle, 0, 1.0) > 0 else (low, middle)
    return 1000.0 * low


@settings(max_examples=60, deadline=None)
@given(beliefs(3, 2), costs(3))
def test_the_thresholds_alone_give_the_rate_that_was_promised(survival, cost):
    policy = solve(cost, survival)
    assume(policy.drafts)
    played = rate_of_thresholds(cost, survival, policy.thresholds)
    assert played == pytest.approx(policy.rate, rel=1e-7)


@settings(max_examples=60, deadline=None)
@given(beliefs(2, 2), costs(2, replay=True))
def test_with_replays_the_promised_rate_is_that_of_a_real_rule(survival, cost):
    policy = solve(cost, survival)
    best = brute_force(cost, survival)
    assert policy.rate <= best * (1 + 1e-9)
    if policy.drafts:
        played = rate_of_thresholds(cost, survival, policy.thresholds)
        assert played == pytest.approx(policy.rate, rel=1e-7)


@given(beliefs(5, 3), costs(5), st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(survival, cost, factor):
    scaled = replace(
        cost,
        plain_ms=cost.plain_ms * factor,
        draft_ms=cost.draft_ms * factor,
        verify_ms=cost.verify_ms * factor,
    )
    here, there = solve(cost, survival), solve(scaled, survival)
    assert there.rate * factor == pytest.approx(here.rate, rel=1e-9)
    assert there.thresholds == pytest.approx(here.thresholds, rel=1e-5, abs=1e-6)


@given(beliefs(5, 3), costs(5), st.floats(0.0, 20.0), st.floats(0.1, 20.0))
def test_dearer_drafting_never_buys_more_draft_steps_a_token(survival, cost, step, extra):
    """The least ms a token is concave in the price of a step; its slope is the steps a token."""
    steps = np.arange(6.0)
    before = solve(replace(cost, draft_ms=step * steps), survival)
    after = solve(replace(cost, draft_ms=(step + extra) * steps), survival)
    paid = before.mean_steps / before.tokens_per_round
    assert after.mean_steps / after.tokens_per_round <= paid * (1 + 1e-6) + 1e-9


@given(
    st.floats(0.05, 0.99),
    st.floats(0.0, 5.0),
    st.floats(0.0, 5.0),
    st.lists(ms, min_size=8, max_size=8),
)
def test_dearer_drafting_never_lengthens_a_draft(acceptance, step, extra, verify):
    """At one known acceptance; a full draft is kept out of it, since its last step is free."""
    survival = SurvivalModel.constant([acceptance] * 8)
    verify = [*verify, 1e6]
    short = solve(simple_cost(verify, step + extra), survival)
    long = solve(simple_cost(verify, step), survival)
    assert short.mean_drafted <= long.mean_drafted + 1e-9


@given(beliefs(6, 3), costs(6))
def test_rates_keep_their_bounds(survival, cost):
    policy = solve(cost, survival)
    assert policy.rate >= policy.zero_rate
    assert policy.plain_rate == pytest.approx(1000.0 / cost.plain_ms)
    drafted, steps, tokens = policy.mean_drafted, policy.mean_steps, policy.tokens_per_round
    assert 0.0 <= drafted <= steps + 1e-9 <= cost.n_max + 1e-8
    assert 1.0 <= tokens + 1e-9 <= 1.0 + drafted + 1e-8
    assert best_policy(cost, survival).rate >= policy.rate * (1 - 1e-9)


@given(beliefs(6, 3), costs(6, replay=True))
def test_nothing_is_ever_nan(survival, cost):
    policy = solve(cost, survival)
    numbers = [policy.rate, policy.mean_drafted, policy.mean_steps, policy.tokens_per_round]
    assert all(math.isfinite(x) for x in numbers)
    assert all(t >= 0 and not math.isnan(t) for t in policy.thresholds)
    assert all(t is None or 0 <= t <= 1 for t in policy.to_json()["thresholds"])


@given(beliefs(4, 3), st.floats(0.0, 3.0), st.lists(st.floats(0.0, 3.0), min_size=4, max_size=4))
def test_rising_marginal_costs_agree_with_the_closed_form(survival, step, growth):
    """If the marginal cost never falls, include i iff S_i ≥ λ*·(C_i − C_{i−1})."""
    marginal = np.cumsum([1.0, *growth[1:]])
    marginal[-1] = max(marginal[-1], marginal[-2] + step)
    cost = simple_cost(np.cumsum([10.0, *marginal]), step)
    policy = solve(cost, survival)
    assume(policy.drafts)
    kept = np.array([cost.kept(k) for k in range(5)])
    closed = policy.rate / 1000.0 * np.diff(kept)
    played = rate_of_thresholds(cost, survival, closed)
    assert played == pytest.approx(policy.rate, rel=1e-6)


def test_many_costs_at_once_are_solved_as_each_alone():
    random = np.random.default_rng(1)
    survival = SurvivalModel.prior(6)
    each = [
        simple_cost(random.uniform(20, 60, size), step)
        for size, step in [(7, 1.0), (3, 0.0), (5, 4.0), (1, 0.0)]
    ]
    for cost, together in zip(each, solve_table(each, survival), strict=True):
        alone = solve(cost, survival)
        assert together.rate == pytest.approx(alone.rate, rel=1e-9)
        assert together.thresholds == pytest.approx(alone.thresholds, rel=1e-6)
        assert together.n_max == cost.n_max


def test_a_table_takes_a_handful_of_passes_whatever_its_size(monkeypatch):
    passes = []
    one_pass = stopping._Problem.solve

    def counted(self, *args, **kwargs):
        passes.append(self.stop.shape)
        return one_pass(self, *args, **kwargs)

    monkeypatch.setattr(stopping._Problem, "solve", counted)
    random = np.random.default_rng(2)
    table = [
        simple_cost(np.cumsum([50.0 + j, *random.uniform(0, 8, 64)]), 3.0 + j / 10)
        for j in range(64)
    ]
    solve_table(table, SurvivalModel.prior(64))
    assert len(passes) <= 6
    assert set(passes) == {(64, 64)}


def test_a_batch_of_nine_that_is_cheaper_than_eight_is_aimed_at():
    verify = [10.0, 16, 22, 28, 34, 40, 46, 52, 20, 60, 70]
    policy = solve(simple_cost(verify), SurvivalModel.constant([0.8] * 10))
    assert policy.mean_drafted == pytest.approx(8)


def test_where_short_drafts_always_lose_the_first_token_waits_for_likely_ones():
    """A curve as DeepSeek's: batches of 2 and 3 cost more than their tokens can bring."""
    verify = [1.0, 3.09, 3.13, 3.29, 3.47, 3.62, 3.81, 3.95, 4.25]
    low = solve(simple_cost(verify), SurvivalModel.constant([0.55] * 8))
    high = solve(simple_cost(verify), SurvivalModel.constant([0.95] * 8))
    assert not low.drafts
    assert high.mean_drafted > 3


def test_never_drafting_costs_the_reevaluation_but_no_step():
    cost = simple_cost([12.0, 30.0, 48.0], 5.0, plain_ms=10.0)
    policy = solve(cost, SurvivalModel.constant([0.1, 0.1]))
    assert policy.thresholds == (math.inf, math.inf)
    assert policy.rate == pytest.approx(1000 / 12)
    assert policy.plain_rate == pytest.approx(100)


def test_the_last_token_of_a_full_draft_costs_no_further_step():
    cost = simple_cost([10.0, 11.0, 12.0, 13.0], 4.0)
    survival = SurvivalModel.constant([0.9, 0.9, 0.0])
    assert solve(cost, survival).rate < best_policy(cost, survival).rate
    assert best_policy(cost, survival).limit == 2


def test_unknown_positions_are_refused():
    with pytest.raises(ValueError, match="known to position 2"):
        solve(simple_cost([1.0, 2.0, 3.0, 4.0]), SurvivalModel.constant([0.5, 0.5]))


def test_the_lattice_costs_hardly_anything_against_the_exact_products():
    prior = SurvivalModel.prior(3)
    cost = simple_cost([20.0, 25.0, 31.0, 33.0], 2.0)
    rates = []
    for exact in (4, 100_000):
        survival = replace(prior)
        vars(survival)["chain"] = Chain.of(prior.q, prior.weight, exact=exact)
        rates.append(solve(cost, survival).rate)
    assert rates[0] == pytest.approx(rates[1], rel=5e-4)
