"""The gate: slower settings are found out in time, equal ones are left alone."""

from __future__ import annotations

import numpy as np
import pytest

from autospec.daemon.retuning.gate import ALARM, FEWEST, WITHIN, Gate
from autospec.daemon.watch import NOTHING
from autospec.tuning.observations import Counters

MOST = 8


def rounds_to_verdict(speed: float, acceptance: float, seed: int, rounds: int) -> int | None:
    """Rounds until the gate blames a setting of `speed` times plain's, None if it never does."""
    random = np.random.default_rng(seed)
    mean = 1.0 + sum(acceptance**i for i in range(1, MOST + 1))
    gate = Gate()
    for count in range(1, rounds + 1):
        hits = random.random(MOST) < acceptance
        accepted = MOST if hits.all() else int(np.argmin(hits))
        time = float(np.exp(random.normal(0.0, 0.05)))
        gate = gate.step([1 + accepted], time * mean / speed)
        if gate.slower():
            return count
    return None


@pytest.mark.parametrize("acceptance", [0.3, 0.6, 0.8])
def test_a_setting_as_fast_as_plain_is_hardly_ever_blamed(acceptance: float) -> None:
    blamed = sum(
        rounds_to_verdict(1.0, acceptance, seed, 2 * WITHIN) is not None for seed in range(150)
    )
    assert blamed <= 150 * 2 * ALARM


@pytest.mark.parametrize("acceptance", [0.3, 0.8])
def test_a_setting_at_seven_tenths_of_plain_is_found_out_within_two_hundred_rounds(
    acceptance: float,
) -> None:
    found = [rounds_to_verdict(0.7, acceptance, seed, WITHIN) for seed in range(60)]
    assert sum(one is not None for one in found) >= 58


def test_no_verdict_comes_from_a_few_rounds() -> None:
    gate = Gate()
    for count in range(1, FEWEST):
        gate = gate.step([1], 100.0)
        assert not gate.slower(), count
    assert gate.step([1], 100.0).slower()


def test_what_is_not_known_of_plain_counts_for_the_setting() -> None:
    gate = Gate()
    for _ in range(WITHIN):
        gate = gate.step([3], 3.6)
    assert gate.ratio == pytest.approx(1 / 1.2)
    assert gate.slower(0.0)
    assert not gate.slower(0.2)


def test_slots_of_one_step_count_as_rounds_of_their_own() -> None:
    gate = Gate().step([1, 4, 2], 9.0)
    assert gate.rounds == 3
    assert gate.ratio == pytest.approx(7 / 9)


def test_counters_tell_the_scatter_of_rounds_they_do_not_list() -> None:
    random = np.random.default_rng(3)
    accepted = [int(np.argmin(np.append(random.random(4) < 0.7, False))) for _ in range(400)]
    single = Gate()
    for one in accepted:
        single = single.step([one + 1], 2.0)
    reached = tuple(sum(one > i for one in accepted) for i in range(4))
    counted = Gate().span(
        Counters(400, 1600, sum(accepted), reached, sum(accepted) + 400, 1.0), 800.0
    )
    assert counted.rounds == single.rounds
    assert counted.ratio == pytest.approx(single.ratio)
    assert counted.spread == pytest.approx(single.spread, rel=1e-6)


def test_it_starts_anew_after_twice_its_span() -> None:
    gate = Gate()
    for _ in range(2 * WITHIN):
        gate = gate.step([2], 1.0)
    assert gate.step([2], 1.0).rounds == 1


def test_nothing_is_learned_from_nothing() -> None:
    assert Gate().ratio is None
    assert Gate().span(NOTHING, 10.0) == Gate()
    for tokens, plain in (([], 1.0), ([1], 0.0), ([1], float("inf")), ([1], float("nan"))):
        with pytest.raises(ValueError):
            Gate().step(tokens, plain)


def test_an_engine_that_counts_no_drafts_is_judged_by_its_tokens() -> None:
    def seen(tokens: int) -> Counters:
        return Counters(0, 0, 0, (), tokens, 10.0, tells_drafts=False)

    slow, alike = Gate(), Gate()
    for _ in range(8):
        slow, alike = slow.span(seen(200), 300.0), alike.span(seen(200), 201.0)
    assert slow.slower()
    assert not alike.slower()
