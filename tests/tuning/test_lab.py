"""Replays and comparisons on recorded rounds."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.calibration.curves import read_rounds, read_steps
from autospec.tuning.cost import CostSurface, StepTime, simple_cost
from autospec.tuning.lab import compare, random_halves, recorded_cost
from autospec.tuning.observations import Round
from autospec.tuning.replay import (
    Trace,
    Triple,
    best_fixed,
    best_scalar,
    cut_average_cost,
    cut_oracle,
    cut_scalar,
    cut_vector,
    rate,
    times,
    tokens,
)
from autospec.tuning.stopping import solve
from autospec.tuning.survival import SurvivalModel

DATA = Path(__file__).parent.parent / "data"
TRACES = ["same_weights", "one_layer_dropped"]

rounds_ = st.lists(
    st.lists(st.floats(0, 1), max_size=6).flatmap(
        lambda p: st.integers(0, len(p)).map(lambda accepted: Round(tuple(p), accepted))
    ),
    min_size=4,
    max_size=40,
).filter(lambda rounds: any(one.drafted for one in rounds))
steps_ms = st.lists(st.floats(1, 50), min_size=7, max_size=7)


@pytest.fixture(scope="module")
def target():
    return CostSurface.from_steps(read_steps(DATA / "batched_bench_pps_not_unified.jsonl"))


def relative(target, n_max):
    plain = target.step(1).value
    return [target.step(b).value / b / plain for b in range(1, n_max + 2)]


@pytest.fixture(scope="module", params=TRACES)
def recorded(request, target):
    rounds = read_rounds(DATA / f"trace_draft_{request.param}.jsonl")
    return rounds, recorded_cost(rounds, target)


def test_costs_of_the_recordings_are_learned_from_their_times(recorded, target):
    rounds, cost = recorded
    assert cost.n_max == 12
    full = [one for one in rounds if one.drafted == 12]
    verify = np.median([one.verify_ms for one in full])
    assert cost.verify_ms[12] == pytest.approx(verify, rel=0.05)
    assert cost.draft_ms[12] == pytest.approx(np.median([r.draft_ms for r in full]), rel=0.05)
    assert cost.plain_ms == target.step(1).value
    assert cost.plain_rate > cost.zero_rate > 0.4 * cost.plain_rate


def test_the_vector_holds_its_own_on_rounds_it_has_not_seen(recorded):
    """Not under the triple fitted on the same half, beyond the paired interval; and near the
    triple that knows the half it is scored on."""
    rounds, cost = recorded
    halves = list(random_halves(cost, rounds, count=12, seed=7))
    ratios = np.array([half.vector / half.scalar for half in halves])
    assert np.quantile(ratios, 0.975) >= 1
    assert np.mean(ratios) >= 0.99
    assert np.mean([half.vector / half.hindsight for half in halves]) >= 0.95


def test_contenders_are_ordered_as_their_knowledge_is(recorded, target):
    rounds, cost = recorded
    found = compare(cost, rounds, relative(target, 12), splits=3)
    assert found.oracle >= found.best_scalar >= found.best_fixed
    assert found.oracle > found.vector
    assert found.vector > found.pr17034
    assert found.vector > found.best_fixed
    assert found.plain == cost.plain_rate
    assert found.gap_closed == pytest.approx(
        (found.vector - found.best_scalar) / (found.oracle - found.best_scalar)
    )


def test_comparisons_repeat_themselves_exactly(recorded, target):
    rounds, cost = recorded
    one, other = (compare(cost, rounds, relative(target, 12), splits=1, seed=3) for _ in "ab")
    assert one == other


def test_a_cut_pays_for_the_step_that_made_it_stop():
    trace = Trace.of([Round((0.9, 0.8, 0.1, 0.9), 3), Round((0.9, 0.9), 1), Round((), 0)])
    cut = cut_scalar(trace, Triple(4, 0, 0.5))
    assert cut.kept.tolist() == [2, 2, 0]
    assert cut.paid.tolist() == [3, 2, 0]
    assert tokens(trace, cut).tolist() == [3, 2, 1]
    cost = simple_cost([10.0, 11, 13, 14, 15], 2.0)
    assert times(cost, trace, cut).tolist() == [13 + 6, 13 + 4, 10]
    assert rate(cost, trace, cut) == pytest.approx(1000 * 6 / 46)


def test_short_drafts_are_thrown_away_after_they_are_paid_for():
    trace = Trace.of([Round((0.9, 0.2, 0.9), 3)])
    cut = cut_scalar(trace, Triple(3, 2, 0.5))
    assert (cut.kept.tolist(), cut.paid.tolist()) == ([0], [2])


def test_replays_after_a_partial_rejection_are_paid():
    trace = Trace.of([Round((0.9, 0.9), 1), Round((0.9, 0.9), 2)])
    cost = simple_cost([10.0, 11, 12], 0.0)
    cost = replace(cost, replay_ms=np.array([5.0, 7.0, 0.0]))
    assert times(cost, trace, cut_scalar(trace, Triple(2, 0, 0.0))).tolist() == [19, 12]


def test_the_rule_of_17034_multiplies_what_is_reported():
    trace = Trace.of([Round((0.9, 0.8, 0.9), 0)])
    assert cut_average_cost(trace, [1.0, 0.9, 0.7, 0.65]).kept.tolist() == [2]
    with pytest.raises(ValueError, match="batches up to 4"):
        cut_average_cost(trace, [1.0, 0.9])


def test_a_policy_that_never_drafts_pays_for_no_step():
    trace = Trace.of([Round((0.5,), 1)])
    model = SurvivalModel.constant([0.01])
    cut = cut_vector(trace, model, solve(simple_cost([10.0, 30.0], 5.0), model))
    assert (cut.kept.tolist(), cut.paid.tolist()) == ([0], [0])


@settings(max_examples=20, deadline=None)
@given(rounds_, steps_ms, st.floats(0, 20))
def test_nobody_beats_the_oracle_and_nothing_is_nan(rounds, verify, step):
    cost, trace = simple_cost(verify, step), Trace.of(rounds)
    oracle = rate(cost, trace, cut_oracle(cost, trace))
    fixed, fixed_rate = best_fixed(cost, trace)
    triple, scalar_rate = best_scalar(cost, trace)
    assert 1 <= fixed <= trace.n_max
    assert fixed_rate <= scalar_rate * (1 + 1e-12)
    assert scalar_rate <= oracle * (1 + 1e-9)
    assert rate(cost, trace, cut_scalar(trace, triple)) == scalar_rate
    found = compare(cost, rounds, [1.0] + [0.5] * trace.n_max, splits=1)
    json.dumps(found.to_json(), allow_nan=False)
    assert found.vector <= oracle * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(rounds_, steps_ms, st.floats(0, 20))
def test_the_oracle_is_the_best_of_all_choices(rounds, verify, step):
    """Against Dinkelbach from above: no round can gain at the oracle's own rate."""
    cost, trace = simple_cost(verify, step), Trace.of(rounds)
    best = rate(cost, trace, cut_oracle(cost, trace)) / 1000
    gain = 0.0
    for accepted, drafted in zip(trace.accepted, trace.drafted, strict=True):
        gain += max(
            1 + min(k, accepted) - best * (cost.draft_ms[k] + cost.verify_ms[k])
            for k in range(drafted + 1)
        )
    assert gain == pytest.approx(0, abs=1e-6 * len(trace))


@given(rounds_)
def test_rules_keep_what_was_drafted_at_most(rounds):
    trace = Trace.of(rounds)
    for triple in (Triple(trace.n_max, 0, 0.0), Triple(1, 0, 0.5), Triple(3, 2, 0.9)):
        kept, paid = cut_scalar(trace, triple)
        assert np.all((kept >= 0) & (kept <= np.minimum(trace.drafted, triple.n_max)))
        assert np.all((paid >= kept) & (paid <= kept.max(initial=0) + trace.n_max))
        assert np.all(paid <= trace.drafted)


def test_what_cannot_be_compared_is_refused(target):
    with pytest.raises(ValueError, match="no round drafted"):
        Trace.of([Round((), 0)])
    with pytest.raises(ValueError, match="four rounds"):
        compare(simple_cost([1.0, 2.0]), [Round((0.5,), 1)] * 3, [1.0, 0.5])
    with pytest.raises(ValueError, match="batches up to 21 at depth 0"):
        recorded_cost([Round((0.5,) * 20, 3)], target)
    with pytest.raises(ValueError, match="at depth 4096"):
        recorded_cost([Round((0.5,), 1)], target, depth=4096)


def test_without_recorded_times_only_the_target_costs():
    target = CostSurface.from_steps(StepTime(b, 0, 10.0 + b, 0.1, 3) for b in range(1, 5))
    cost = recorded_cost([Round((0.5,) * 3, 1)] * 4, target)
    assert cost.draft_ms.tolist() == [0, 0, 0, 0]
    assert cost.verify_ms.tolist() == pytest.approx([11, 12, 13, 14])


def test_where_the_best_triple_is_the_oracle_there_is_no_gap():
    rounds = [Round((0.9,), 1)] * 6
    found = compare(simple_cost([10.0, 10.0]), rounds, [1.0, 0.5], splits=1)
    assert found.gap_closed is None
    assert math.isclose(found.oracle, 200.0)
    assert found.to_json()["gap_closed"] is None
