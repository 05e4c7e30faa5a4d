"""Slots that draft side by side, each stopping for itself."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.tuning.cost import (
    CostSurface,
    DraftCost,
    RoundOverhead,
    StepTime,
    round_cost,
)
from autospec.tuning.mixture import StepTimes
from autospec.tuning.projection import best_scalar, scalar_rate
from autospec.tuning.replay import Trace, Triple, cut_scalar, cut_vector, tokens
from autospec.tuning.shared import _Game, best_policy, policy_table
from autospec.tuning.stopping import solve
from autospec.tuning.survival import SurvivalModel

N_MAX = 4


def surface(ms):
    return CostSurface.from_steps(
        StepTime(batch, 0, time, 0.0, 3) for batch, time in enumerate(ms, start=1)
    )


def jagged(random, largest, start=20.0):
    """Batch times that mostly rise and sometimes fall, as kernels switch."""
    return surface(start + np.cumsum(random.uniform(-1.0, 4.0, largest)))


def solve_shared(target, draft, model, *, limit_is_free=False, **where):
    """The policy that `slots` slots follow together: a table of one cell."""
    costs = {(): round_cost(target, draft, **where)}
    return policy_table(costs, model, limit_is_free=limit_is_free)[()]


def draft_of(step_ms, slots=8):
    return DraftCost("autoregressive", surface([step_ms] * (slots * (N_MAX + 1))))


def belief(random, n_max=N_MAX):
    """Two levels of p with acceptances of their own."""
    q = np.sort(random.uniform(0.1, 0.95, (n_max, 2)), axis=1)
    weight = random.dirichlet([2.0, 2.0], n_max)
    return SurvivalModel(np.array([0.3, 0.9]), q, weight, np.full(n_max, 50.0))


def played(target, draft, model, policy, slots, random, steps=20_000):
    """Tokens/s of `policy` in simulated steps, drawn from the model itself."""
    shape = (steps * slots, model.n_max)
    high = random.random(shape) < model.weight[:, 1]
    hits = random.random(shape) < np.where(high, model.q[:, 1], model.q[:, 0])
    survival = np.cumprod(np.where(high, model.q[:, 1], model.q[:, 0]), axis=1)
    stop = survival < np.array(policy.thresholds)
    kept = np.where(stop.any(axis=1), np.argmax(stop, axis=1), policy.n_max)
    paid = np.minimum(kept + 1, policy.n_max) if policy.drafts else np.zeros_like(kept)
    accepted = np.where(hits.all(axis=1), model.n_max, np.argmin(hits, axis=1))
    batch = 1.0 + np.arange(slots * model.n_max + 1) / slots
    times = StepTimes(
        slots,
        target.steps(batch, 0.0, slots)[0] + draft.reevaluations(batch, 0.0, slots)[0],
        np.array([0.0, *(draft.drafting(1, 0.0, n).value for n in range(1, slots + 1))]),
    )
    made = (1 + np.minimum(accepted, kept)).sum()
    return 1000 * made / (times.drafting(paid).sum() + times.verifying(kept).sum())


@pytest.mark.parametrize("slots", [2, 5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_predicted_rate_is_the_rate_of_slots_that_stop_apart(slots, seed):
    random = np.random.default_rng(seed)
    target, draft = jagged(random, slots * (N_MAX + 1)), draft_of(1.5)
    model = belief(random)
    policy = solve_shared(target, draft, model, n_max=N_MAX, slots=slots)
    assert played(target, draft, model, policy, slots, random) == pytest.approx(
        policy.rate, rel=0.01
    )


@pytest.mark.parametrize("seed", range(6))
def test_slots_that_stop_apart_do_not_lose_to_slots_that_are_thought_to_stop_together(seed):
    random = np.random.default_rng(seed)
    slots = 4
    target, draft, model = jagged(random, slots * (N_MAX + 1)), draft_of(2.0), belief(random)
    apart = solve_shared(target, draft, model, n_max=N_MAX, slots=slots)
    together = solve(round_cost(target, draft, n_max=N_MAX, slots=slots), model)
    assert apart.rate >= 0.99 * played(target, draft, model, together, slots, random)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_one_slot_is_the_plain_stopping_problem(seed):
    random = np.random.default_rng(seed)
    target, draft, model = jagged(random, N_MAX + 1), draft_of(1.0), belief(random)
    overhead = RoundOverhead(1.2, 3.0, 0.1)
    cost = round_cost(target, draft, n_max=N_MAX, overhead=overhead)
    assert solve_shared(target, draft, model, n_max=N_MAX, overhead=overhead) == solve(cost, model)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.98), st.integers(2, 4))
def test_known_acceptance_gives_the_best_common_length(seed, acceptance, slots):
    """Nothing to learn from p: every slot keeps the same k, and all k can be tried."""
    random = np.random.default_rng(seed)
    target, draft = jagged(random, slots * (N_MAX + 1)), draft_of(1.0)
    model = SurvivalModel.constant([acceptance] * N_MAX)
    overhead = RoundOverhead(1.3, 4.0, 0.5)
    cost = round_cost(target, draft, n_max=N_MAX, slots=slots, overhead=overhead)
    made = np.cumsum(acceptance ** np.arange(N_MAX + 1))
    rates = [1000 * slots * made[k] / cost.kept(k) for k in range(N_MAX + 1)]
    best = max(*rates, cost.zero_rate)
    policy = solve_shared(target, draft, model, n_max=N_MAX, slots=slots, overhead=overhead)
    assert policy.rate == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_no_other_common_rule_is_much_better(seed):
    """Against every vector of thresholds for two positions, each scored exactly. Optimal person
    by person is not optimal: of 60 curves as wild as these, 48 came within 0.2 % of the best
    common rule, and the worst lost 9 %."""
    random = np.random.default_rng(seed)
    slots, n_max = 3, 2
    target, draft, model = jagged(random, slots * 3, start=8.0), draft_of(0.7), belief(random, 2)
    policy = solve_shared(target, draft, model, n_max=n_max, slots=slots)
    cost = round_cost(target, draft, n_max=n_max, slots=slots)
    choices = [[*values, np.inf] for values in model.chain.values[1:]]
    rules = [
        (replace(policy, thresholds=rule, mean_steps=1.0), n_max) for rule in product(*choices)
    ]
    plays = _Game(cost, cost.shared, model, None).plays(rules)
    assert policy.rate >= 0.95 * max(play.policy.rate for play in plays)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limit_is_free", [True, False])
def test_a_table_goes_on_from_the_one_in_force(seed, limit_is_free):
    """With a belief that moved a little, or a lot: as good as a search from nothing, within a
    per cent, and never under not drafting."""
    random = np.random.default_rng(seed)
    target, draft = jagged(random, 3 * (N_MAX + 1)), draft_of(0.8)
    costs = {s: round_cost(target, draft, n_max=N_MAX, slots=s) for s in (1, 2, 3)}
    for before, after in (([0.7] * N_MAX, [0.75] * N_MAX), ([0.1] * N_MAX, [0.95] * N_MAX)):
        model = SurvivalModel.constant(after)
        start = policy_table(costs, SurvivalModel.constant(before), limit_is_free=limit_is_free)
        table = policy_table(costs, model, limit_is_free=limit_is_free, start=start)
        anew = policy_table(costs, model, limit_is_free=limit_is_free)
        for slots, policy in table.items():
            assert policy.rate >= 0.99 * anew[slots].rate
            assert policy.rate >= policy.zero_rate * (1 - 1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.floats(0.01, 20))
def test_more_freedom_never_loses(seed, slots, step_ms):
    random = np.random.default_rng(seed)
    target, draft, model = jagged(random, slots * (N_MAX + 1)), draft_of(step_ms), belief(random)
    bound = solve_shared(target, draft, model, n_max=N_MAX, slots=slots)
    free = solve_shared(target, draft, model, n_max=N_MAX, slots=slots, limit_is_free=True)
    assert bound.rate >= bound.zero_rate * (1 - 1e-12)
    assert free.rate >= bound.zero_rate * (1 - 1e-12)
    if slots == 1:
        assert free.rate >= bound.rate * (1 - 1e-9)
    assert all(np.isfinite([free.rate, free.mean_drafted, free.mean_steps, bound.rate]))
    assert free.n_max == bound.n_max == N_MAX
    assert free.limit is None or free.mean_drafted - 1e-9 <= free.limit < N_MAX
    assert bound.limit is None


def test_a_free_limit_is_kept_to_in_a_replay():
    trace = Trace(np.full((3, N_MAX), 0.9), np.full(3, N_MAX), np.full(3, N_MAX))
    model = SurvivalModel.constant([0.9] * N_MAX)
    flat_then_steep = surface([20.0, 20.5, 21.0, *np.linspace(60, 90, 2 * N_MAX)])
    policy = solve_shared(
        flat_then_steep, draft_of(1.0), model, n_max=N_MAX, slots=1, limit_is_free=True
    )
    cut = cut_vector(trace, model, policy)
    assert policy.limit == 2
    assert policy.thresholds[2:] == (np.inf, np.inf)
    assert cut.kept.tolist() == cut.paid.tolist() == [2, 2, 2]
    assert tokens(trace, cut).tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    "triple", [(4, 0, 0.5), (4, 2, 0.5), (3, 0, 0.0), (2, 3, 0.0), (0, 0, 0.0)]
)
@pytest.mark.parametrize("slots", [2, 4])
def test_a_triple_is_predicted_as_slots_that_stop_apart_play_it(triple, slots):
    n_max, n_min, p_min = triple
    random = np.random.default_rng(11)
    target, draft, model = jagged(random, slots * (N_MAX + 1)), draft_of(1.5), belief(random)
    steps = 20_000
    shape = (steps * slots, N_MAX)
    high = random.random(shape) < model.weight[:, 1]
    hits = random.random(shape) < np.where(high, model.q[:, 1], model.q[:, 0])
    accepted = np.where(hits.all(axis=1), N_MAX, np.argmin(hits, axis=1))
    trace = Trace(np.where(high, 0.9, 0.3), np.full(len(high), N_MAX), accepted)
    cut = cut_scalar(trace, Triple(n_max, n_min, p_min))
    batch = 1.0 + np.arange(slots * N_MAX + 1) / slots
    times = StepTimes(
        slots,
        target.steps(batch, 0.0, slots)[0] + draft.reevaluations(batch, 0.0, slots)[0],
        np.array([0.0, *(draft.drafting(1, 0.0, n).value for n in range(1, slots + 1))]),
    )
    spent = times.drafting(cut.paid).sum() + times.verifying(cut.kept).sum()
    cost = round_cost(target, draft, n_max=N_MAX, slots=slots)
    assert scalar_rate(cost, model, n_max, n_min, p_min) == pytest.approx(
        1000 * tokens(trace, cut).sum() / spent, rel=0.01
    )


def test_hardly_any_triple_is_predicted_to_beat_the_vector_in_a_shared_batch():
    """Person by person optima are local: of 400 curves as wild as these the best triple was
    over 0.1 % better on 9, on one by 2.8 %."""
    ratios = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        slots = 2 + seed % 4
        target, draft = jagged(random, slots * (N_MAX + 1)), draft_of(random.uniform(0.05, 3.0))
        model = belief(random)
        cost = round_cost(target, draft, n_max=N_MAX, slots=slots)
        best = best_scalar(cost, model, n_min=0)
        assert best.rate_low <= best.rate <= best.rate_high
        ratios.append(best.rate / best_policy(cost, model).rate)
    assert max(ratios) <= 1.03
    assert np.quantile(ratios, 0.9) <= 1.001


@pytest.mark.parametrize("kind", ["ngram", "none", "block"])
def test_other_kinds_of_drafts_are_solved_too(kind):
    random = np.random.default_rng(4)
    target, model = jagged(random, 3 * (N_MAX + 1)), belief(random)
    draft = DraftCost(kind, surface([1.0] * (3 * (N_MAX + 1))))
    policy = solve_shared(target, draft, model, n_max=N_MAX, slots=3)
    assert policy.rate >= policy.zero_rate


def test_a_child_launched_without_room_for_a_draft_never_drafts():
    random = np.random.default_rng(5)
    policy = solve_shared(jagged(random, 4), draft_of(1.0), belief(random), n_max=0, slots=3)
    assert policy.thresholds == ()
    assert not policy.drafts
