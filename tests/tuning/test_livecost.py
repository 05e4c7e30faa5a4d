"""Costs corrected by live rounds: the calibration is the prior."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from autospec.tuning.correction import Correction, place
from autospec.tuning.cost import CostSurface, DraftCost, RoundOverhead, StepTime, round_cost
from autospec.tuning.livecost import ERRORS, LiveCost, TimedStep
from autospec.tuning.mixture import Mixture
from autospec.tuning.observations import Round

DATA = Path(__file__).parent.parent / "data"
MACHINE = Mixture.from_json(json.loads((DATA / "mixture_moe.json").read_text())).machine
OVERHEAD = RoundOverhead(MACHINE.draft_factor, MACHINE.round_overhead_ms)
K = 8


def flat(slots, total, depth):
    return 1.3


def cheaper(slots, total, depth):
    return 0.7


def tilted(slots, total, depth):
    """Small batches as calibrated, large ones 30 % dearer, and deep ones again."""
    return 1.0 + 0.3 * min(1.0, math.log2(total) / 4) * (1.0 + depth / 8192) / 2


def jagged(slots, total, depth):
    """Another kernel for batches of 6 to 12 tokens only."""
    return 1.3 if 6 <= total <= 12 else 1.0


WRONG = [flat, cheaper, tilted, jagged]


def live_steps(wrong, count, random, outliers=0.0, loads=(1, 2, 4)):
    """Steps as a server makes them that costs `wrong` times what was calibrated."""
    steps = []
    for _ in range(count):
        slots, depth = int(random.choice(loads)), float(random.choice([300, 2000, 6000]))
        kept = random.integers(0, K + 1, slots)
        paid = np.minimum(kept + 1, K)
        times = MACHINE.step_times(slots, depth, K)
        noise = np.exp(random.normal(0.0, 0.05, 2))
        noise *= random.uniform(3.0, 10.0) if random.random() < outliers else 1.0
        total = slots + int(kept.sum())
        steps.append(
            TimedStep(
                slots=slots,
                depth=depth,
                drafted=float(kept.sum()),
                verify_ms=float(times.verifying(kept)[0] * wrong(slots, total, depth) * noise[0]),
                steps=int(paid.max()),
                draft_ms=float(times.draft[slots] * paid.max() * 1.2 * noise[1]),
            )
        )
    return steps


def calibrated(random):
    target, draft = MACHINE.calibrated(random)
    return LiveCost(target, DraftCost("autoregressive", draft), OVERHEAD)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("outliers", [0.0, 0.1])
def test_after_200_rounds_costs_are_predicted_within_a_tenth(wrong, outliers):
    """The truth is up to 30 % off what was calibrated, and one round in ten is disturbed."""
    random = np.random.default_rng(3)
    cost = calibrated(random)
    steps = live_steps(wrong, 260, random, outliers)
    for start in range(0, 200, 20):
        cost = cost.observe(steps[start : start + 20])
    rest = cost.observe(steps[200:])
    late = np.median(rest.errors[-60:])
    assert late <= 0.10
    assert late <= 0.08 or outliers
    assert cost.observed == 200
    assert rest.prediction_error == np.median(rest.errors)


def test_jags_stay_where_they_were_measured():
    random = np.random.default_rng(4)
    cost = calibrated(random)
    steps = live_steps(flat, 400, random, loads=(1,))
    before = cost.round_cost(n_max=K, depth=2000)
    after = cost.observe(steps).round_cost(n_max=K, depth=2000)
    ratio = after.verify_ms / before.verify_ms
    assert ratio == pytest.approx(np.full(K + 1, 1.3), rel=0.06)
    assert after.plain_ms / before.plain_ms == pytest.approx(1.3, rel=0.06)


def test_without_rounds_the_calibration_stands():
    cost = calibrated(np.random.default_rng(5))
    for slots in (1, 4):
        known = round_cost(
            cost.target, cost.draft, n_max=K, depth=900.0, slots=slots, overhead=OVERHEAD
        )
        assert cost.round_cost(n_max=K, depth=900.0, slots=slots).verify_ms.tolist() == (
            known.verify_ms.tolist()
        )
    assert cost.prediction_error is None
    assert cost.observe([]) is cost


def test_uncertainty_fades_where_rounds_are_seen_and_stays_elsewhere():
    random = np.random.default_rng(6)
    cost = calibrated(random)
    few = cost.observe(live_steps(flat, 5, random, loads=(1,)))
    many = few.observe(live_steps(flat, 300, random, loads=(1,)))
    near = [one.round_cost(n_max=K, depth=2000.0).spread_ms[4] for one in (few, many)]
    assert near[1] < 0.6 * near[0]
    far = many.round_cost(n_max=K, depth=2000.0, slots=8)
    assert far.spread_ms[K] / far.verify_ms[K] > (
        many.round_cost(n_max=K, depth=2000.0).spread_ms[4]
        / many.round_cost(n_max=K, depth=2000.0).verify_ms[4]
    )


def test_live_rounds_are_measurements_where_the_calibration_did_not_reach():
    target = CostSurface.from_steps(StepTime(b, 0, 20.0 + b, 0.2, 3) for b in range(1, 10))
    cost = LiveCost(target, DraftCost("none"))
    assert cost.round_cost(n_max=K, depth=4096.0).extrapolated
    steps = [
        TimedStep(1, 4096.0, drafted, 1.4 * (21.0 + drafted)) for drafted in [*range(K + 1)] * 20
    ]
    after = cost.observe(steps).round_cost(n_max=K, depth=4096.0)
    assert not after.extrapolated
    assert after.verify_ms == pytest.approx(1.4 * (21.0 + np.arange(K + 1)), rel=0.05)


def test_a_change_is_followed_and_old_evidence_gives_way():
    random = np.random.default_rng(7)
    cost = calibrated(random).observe(live_steps(cheaper, 300, random))
    before = cost.alarms
    for _ in range(20):
        cost = cost.observe(live_steps(flat, 10, random))
    assert cost.alarms > before
    rest = cost.observe(live_steps(flat, 60, random))
    assert np.median(rest.errors[-60:]) <= 0.10


def test_a_shared_batch_is_corrected_as_a_single_one_is():
    random = np.random.default_rng(8)
    cost = calibrated(random)
    before = cost.round_cost(n_max=4, depth=2000.0, slots=4).shared
    after = cost.observe(live_steps(flat, 600, random)).round_cost(n_max=4, depth=2000.0, slots=4)
    assert after.shared.verify_ms / before.verify_ms == pytest.approx(np.full(17, 1.3), rel=0.08)
    assert after.shared.draft_ms[4] / before.draft_ms[4] == pytest.approx(1.2, rel=0.06)
    assert after.shared.verify_ms[::4] == pytest.approx(after.verify_ms, rel=1e-9)


def test_one_step_of_several_slots_is_made_of_their_rounds():
    rounds = [
        Round((0.9, 0.8), 2, draft_ms=9.0, verify_ms=40.0, cut_p=0.1),
        Round((0.9,) * 4, 1, draft_ms=9.0, verify_ms=44.0),
    ]
    step = TimedStep.of(rounds, slots=2, depth=100.0)
    assert step == TimedStep(2, 100.0, 6.0, 44.0, steps=4, draft_ms=9.0)
    assert TimedStep.of(rounds[:1], slots=2, depth=0.0).drafted == 4.0, "the other drafts alike"
    assert TimedStep.of([Round((), 0, verify_ms=30.0)], slots=1, depth=0.0) == TimedStep(
        1, 0.0, 0.0, 30.0
    )
    assert TimedStep.of([Round((0.5,), 0)], slots=1, depth=0.0) is None
    assert TimedStep.of([Round((0.5,), 0, verify_ms=math.inf)], slots=1, depth=0.0) is None


numbers = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.lists(
        st.builds(
            TimedStep, st.integers(-1, 64), numbers, numbers, numbers, st.integers(-1, 99), numbers
        ),
        max_size=12,
    )
)
def test_nothing_that_production_shows_makes_a_cost_that_cannot_be(steps):
    target = CostSurface.from_steps(StepTime(b, 0, 20.0 + b, 0.2, 3) for b in range(1, 10))
    cost = LiveCost(target, DraftCost("autoregressive", target)).observe(steps)
    for slots in (1, 3):
        found = cost.round_cost(n_max=3, depth=50.0, slots=slots)
        assert np.all(np.isfinite(found.verify_ms)), "RoundCost checks the rest"
    assert len(cost.errors) <= ERRORS


def test_a_correction_against_itself_is_certain_and_against_others_is_not():
    x = place([1.0, 4.0, 16.0], 0.0, 1.0)
    fresh = Correction()
    seen = fresh.add(np.repeat(x, 4, axis=0), np.full(12, 0.2))
    for one in (fresh, seen):
        now, before = one.spread(x, x[:1])
        assert now[0] == pytest.approx(0.0, abs=1e-6)
        assert before[0] == pytest.approx(0.0, abs=1e-6)
        assert before[1] < before[2]
    assert np.all(seen.spread(x, x[:1])[0][1:] < fresh.spread(x, x[:1])[0][1:])
    assert seen.factor(x) == pytest.approx(np.exp(0.2), rel=0.05)
