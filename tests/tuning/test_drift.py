"""Sequential detection: what it promises, and how soon it sees real changes."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.tuning.drift import (
    BETS,
    Detector,
    acceptance_surprise,
    cost_surprise,
    watch_acceptance,
    watch_cost,
)


def run_length(detector, draw, limit):
    """Rounds until the alarm, `limit` if there is none before."""
    while detector.alarm is None and detector.rounds < limit:
        detector = detector.observe(draw())
    return detector.rounds


def accepted(rng, acceptance, drafted):
    count = 0
    while count < drafted and rng.random() < acceptance:
        count += 1
    return count


def test_false_alarms_are_rarer_than_stated_at_the_very_edge_of_tolerance():
    rng = random.Random(5)
    stated = 100
    runs = [
        run_length(Detector(0.05, 0.5, stated), lambda: rng.choice([0.55, -0.45]), 3000)
        for _ in range(120)
    ]
    assert statistics.mean(runs) > stated
    early = sum(run <= stated / 4 for run in runs) / len(runs)
    assert early <= 1 / 4


def test_noise_that_wanders_within_tolerance_is_no_change():
    """Slow waves, bursts of variance and single stalls of 20x: nothing to tune again for."""
    rng = random.Random(7)
    rounds = iter(range(20_000))

    def draw():
        t = next(rounds)
        level = 0.04 * math.sin(t / 300)
        burst = 0.2 if t // 500 % 4 == 0 else 0.03
        stall = math.log(20) if rng.random() < 0.01 else 0.0
        return level + rng.gauss(0, burst) + stall

    assert run_length(watch_cost(), draw, 20_000) == 20_000


@pytest.mark.parametrize(("factor", "within"), [(1.2, 120), (1.5, 60), (0.7, 60)])
def test_a_changed_cost_is_seen_soon_after_a_long_quiet_time(factor, within):
    rng = random.Random(11)
    quiet = watch_cost()
    for _ in range(3000):
        quiet = quiet.observe(rng.gauss(0, 0.08))
    delays = [
        run_length(quiet, lambda: rng.gauss(math.log(factor), 0.08), 10_000) - quiet.rounds
        for _ in range(15)
    ]
    assert statistics.median(delays) <= within


def test_the_time_of_the_change_is_told():
    rng = random.Random(3)
    for quiet in (10, 500, 4000):
        detector = watch_cost()
        for _ in range(quiet):
            detector = detector.observe(rng.gauss(0, 0.08))
        while detector.alarm is None:
            detector = detector.observe(rng.gauss(math.log(1.6), 0.08))
        assert detector.since == pytest.approx(detector.rounds - quiet, abs=4)


def test_the_direction_is_told():
    slower, faster = watch_cost(), watch_cost()
    for _ in range(100):
        slower, faster = slower.observe(math.log(2)), faster.observe(math.log(0.5))
    assert (slower.alarm, faster.alarm) == ("up", "down")
    assert slower.reset() == watch_cost()
    assert slower.reset().alarm is None


@pytest.mark.parametrize(("acceptance", "within"), [(0.5, 80), (0.3, 60), (0.95, 600)])
def test_changed_text_is_seen(acceptance, within):
    rng = random.Random(13)
    predicted = [0.8**i for i in range(1, 7)]
    delays = [
        run_length(
            watch_acceptance(),
            lambda: acceptance_surprise(accepted(rng, acceptance, 6), predicted),
            10_000,
        )
        for _ in range(15)
    ]
    assert statistics.median(delays) <= within


def test_unchanged_text_is_not_tuned_again():
    rng = random.Random(17)
    predicted = [0.8**i for i in range(1, 7)]
    rounds = run_length(
        watch_acceptance(), lambda: acceptance_surprise(accepted(rng, 0.8, 6), predicted), 20_000
    )
    assert rounds == 20_000


def test_evidence_stays_finite_long_after_an_alarm():
    detector = watch_cost()
    for _ in range(5000):
        detector = detector.observe(10.0)
    assert math.isfinite(detector.evidence)
    assert detector.alarm == "up"


@given(st.lists(st.floats(allow_nan=False), max_size=60))
def test_evidence_is_a_number_whatever_was_seen(surprises):
    detector = watch_acceptance()
    for surprise in surprises:
        detector = detector.observe(surprise)
    assert 0 <= detector.evidence < math.inf
    assert detector.rounds == len(surprises)


@given(st.floats(0.001, 0.999), st.floats(0.0, 0.4))
def test_one_bet_gains_nothing_while_the_mean_is_tolerated(share, tolerance):
    """E[e] ≤ 1 for the two-point law on ±bound with mean `tolerance`, the hardest there is."""
    bound = 0.5
    up = (tolerance + bound) / (2 * bound)
    start = Detector(tolerance, bound, 10)
    better, worse = start.observe(bound), start.observe(-bound)
    for high, low in zip(better.up, worse.up, strict=True):
        expected = up * high.evidence + (1 - up) * low.evidence
        assert expected <= 1 + 1e-12
        assert low.evidence >= 0
        if share <= up:
            assert share * high.evidence + (1 - share) * low.evidence <= 1 + 1e-12


@pytest.mark.parametrize(
    "make",
    [
        lambda: Detector(0.5, 0.5),
        lambda: Detector(-0.1, 0.5),
        lambda: Detector(0.1, math.inf),
        lambda: Detector(0.1, 0.5, run_length=0.5),
        lambda: Detector(0.1, 0.5, run_length=math.inf),
        lambda: watch_cost().observe(math.nan),
        lambda: cost_surprise(0.0, 1.0),
        lambda: cost_surprise(1.0, math.nan),
        lambda: acceptance_surprise(3, [0.5, 0.2]),
        lambda: acceptance_surprise(0, []),
        lambda: acceptance_surprise(1, [0.5, math.nan]),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(ValueError, match=r"detector|surprise|time|round|survival"):
        make()


def test_surprises_are_zero_where_the_prediction_held():
    assert cost_surprise(12.0, 12.0) == 0
    assert acceptance_surprise(2, [1.0, 1.0]) == 0
    assert acceptance_surprise(0, [1.0, 1.0]) == -1


def test_evidence_is_the_average_of_every_bet_in_both_directions():
    """One round at the bound: each bet is worth 1 ± bet·gain, by hand."""
    detector = Detector(0.0, 0.5, run_length=1).observe(0.5)
    assert detector.evidence == pytest.approx(1.0)
    assert [bet.evidence for bet in detector.up] == pytest.approx([1 + b for b in BETS])
    assert [bet.evidence for bet in detector.down] == pytest.approx([1 - b for b in BETS])
    assert detector.since == 1
    assert Detector(0.0, 0.5, run_length=1.0).observe(0.0).alarm is not None


def test_times_under_a_millisecond_and_sure_survival_are_in_order():
    assert cost_surprise(0.5, 0.25) == pytest.approx(math.log(2))
    with pytest.raises(ValueError, match="probability"):
        acceptance_surprise(1, [1.5])
