"""The live policy follows text, load and depth; what does not change is left alone."""

from __future__ import annotations

import time

import numpy as np
import pytest
from live_traffic import CONTEXT, EASY, HARD, LONGEST, LYING, LiveTraffic

from autospec.config.schema import RetuneSection
from autospec.daemon.retuning.decide import LIVE
from autospec.daemon.retuning.exploring import FIRST
from autospec.daemon.tuner import Tuner
from autospec.daemon.watch import Watch


def drafted(traffic: LiveTraffic, last: int) -> float:
    """Mean length of the last drafts."""
    return float(np.mean(traffic.lengths[-last:]))


def test_the_child_is_launched_with_room_for_the_longest_draft() -> None:
    assert LiveTraffic().setting.speculation.n_max == LONGEST


def test_drafts_follow_the_text_within_a_hundred_rounds() -> None:
    traffic = LiveTraffic()
    traffic.play(EASY, 300)
    easy = drafted(traffic, 100)
    traffic.play(HARD, 150)
    hard = drafted(traffic, 50)
    traffic.play(EASY, 150)
    again = drafted(traffic, 50)
    assert easy > 1.8 * hard
    assert again > 0.75 * easy
    assert len(traffic.settings) == 1


def test_half_of_what_a_change_of_text_costs_is_won_back_within_fifty_rounds() -> None:
    """The draft is as sure of itself as before, and wrong: only the verdicts tell."""
    traffic = LiveTraffic()
    traffic.play(EASY, 400)
    at_once = traffic.play(LYING, 25)
    reacting = traffic.play(LYING, 75)
    settled = traffic.play(LYING, 200)
    assert reacting >= at_once + (settled - at_once) / 2
    assert len(traffic.settings) == 1
    traffic.play(EASY, 60)
    assert traffic.play(EASY, 60) > 2.0 * settled


def test_drafts_become_shorter_as_slots_join_without_a_restart() -> None:
    traffic = LiveTraffic(slots=4)
    traffic.play(EASY, 400)
    alone = drafted(traffic, 100)
    traffic.play(EASY, 400, busy=4)
    shared = drafted(traffic, 100)
    traffic.play(EASY, 200)
    assert shared < 0.8 * alone
    assert traffic.tuner.advisor is not None
    told = [one.decision for one in traffic.tuner.advisor.decisions]
    assert any(one.action == "change live" and "with 4 busy slots" in one.reason for one in told)
    assert drafted(traffic, 100) > 0.9 * alone
    assert len(traffic.settings) == 1


def test_depth_is_followed_by_the_table_of_thresholds() -> None:
    traffic = LiveTraffic()
    traffic.play(EASY, 400, grow=False)
    table = traffic.session.table
    assert table is not None
    first, last = table.thresholds[0, 0], table.thresholds[0, -1]
    assert max(table.depth_from) > CONTEXT / 2
    assert not np.array_equal(first, last)


def test_stationary_traffic_changes_nothing_beyond_the_budget_of_exploring() -> None:
    traffic = LiveTraffic()
    traffic.play(EASY, 2000)
    assert len(traffic.settings) == 1
    steering = traffic.tuner.steering
    assert steering is not None
    assert 1 <= steering.budget.explored <= 0.01 * steering.budget.rounds + FIRST
    assert traffic.tuner.advisor is not None
    actions = [one.decision.action for one in traffic.tuner.advisor.decisions]
    assert not any("restart" in action for action in actions)
    assert sum(action == "change live" for action in actions) <= 4


def test_costs_that_were_calibrated_wrong_are_learned() -> None:
    traffic = LiveTraffic(dearer=1.3)
    traffic.play(EASY, 360)
    advisor = traffic.tuner.advisor
    assert advisor is not None
    error = advisor.knowledge.costs.live.prediction_error
    assert error is not None
    assert error < 0.08
    assert advisor.against_prediction.ratio == pytest.approx(1.0, abs=0.12)


def test_long_drafts_that_were_measured_too_dear_are_found_out() -> None:
    """A disturbed benchmark showed no use in more than 3 tokens; the doubt that it left is what
    makes the tuner look."""
    traffic = LiveTraffic(disturbed=2.6)
    traffic.play(EASY, 30)
    assert drafted(traffic, 12) < 4.5
    traffic.play(EASY, 170)
    assert drafted(traffic, 100) > 5.5
    assert traffic.tuner.steering is not None
    assert 1 <= traffic.tuner.steering.budget.explored <= FIRST


def test_steering_that_measures_slower_than_plain_is_left_within_two_hundred_rounds() -> None:
    traffic = LiveTraffic(dearer=1.0)
    traffic.play(EASY, 200)
    assert traffic.setting.live
    before = traffic.rounds
    traffic.dearer = 6.0
    while traffic.setting.live and traffic.rounds < before + 400:
        traffic.play(HARD, 10)
    assert not traffic.setting.speculation.on
    assert traffic.rounds - before <= 260
    assert traffic.tuner.advisor is not None
    assert any(name == LIVE for name, _ in traffic.tuner.advisor.trials.failed)
    assert any("restart without a draft" in text for text in traffic.said)


def test_prediction_and_measurement_that_part_are_told_of() -> None:
    traffic = LiveTraffic()
    traffic.play(EASY, 200)
    assert not any("measured where" in text for text in traffic.said)


def test_off_stops_drafting_with_the_next_round() -> None:
    traffic = LiveTraffic()
    traffic.play(EASY, 100)
    traffic.tuner.force_plain(True)
    before = len(traffic.lengths)
    traffic._step(EASY, 1, grow=False)
    assert traffic.lengths[before:] == [0]
    traffic.play(EASY, 60)
    assert not traffic.setting.speculation.on
    traffic.tuner.force_plain(False)
    traffic.play(EASY, 60)
    assert traffic.setting.live


def test_a_fault_in_a_thought_is_told_once_and_the_next_one_is_thought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traffic = LiveTraffic()
    tuner = Tuner(traffic.tuner.model, RetuneSection(), clock=lambda: traffic.now)
    assert tuner.advisor is not None
    monkeypatch.setattr(tuner.advisor, "think", lambda *_: 1 / 0)
    watch = Watch()
    traffic.now += 60.0

    def ask(times: int) -> None:
        for _ in range(times):
            assert tuner.reconsider(traffic.setting, watch) is None
            time.sleep(0.02)

    with pytest.raises(ZeroDivisionError):
        ask(500)
    monkeypatch.undo()
    traffic.now += 60.0
    ask(20)
