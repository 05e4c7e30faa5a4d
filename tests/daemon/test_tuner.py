"""A tuner under traffic that is made up, on a clock that is told what time it is."""

from __future__ import annotations

from typing import Any

import pytest

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon.choose import Model
from autospec.daemon.memory import Memory
from autospec.daemon.retuning.decide import PLAIN, Decision
from autospec.daemon.tuner import Tuner
from autospec.daemon.watch import Watch, add
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Counters, Round

DRAFTED = 8
PLAIN_MS = 41.0


class Traffic:
    """One slot that always works, and a child that is replaced when the tuner says so."""

    def __init__(self, after: float = 30.0, memory: Memory | None = None, **config: Any) -> None:
        batches = range(1, DRAFTED + 2)
        calibration = Calibration(
            key="k",
            model="m",
            made_at=0.0,
            seconds=1.0,
            engine_version="1",
            max_draft=DRAFTED,
            target=tuple(StepTime(b, 0, 40.0 + b, 0.1, 5) for b in batches),
            draft=tuple(StepTime(b, 0, 2.0, 0.01, 5) for b in batches),
            rounds=(Round((0.8,) * DRAFTED, DRAFTED, 16.0, 51.0),) * 100,
        )
        fields = {"path": "t.gguf", "draft": "d.gguf", "context": 4096, **config}
        self.now = 0.0
        self.said: list[str] = []
        self.fresh = Model(ModelConfig(**fields), 4096, calibration)
        self.tuner = Tuner(
            self.fresh,
            RetuneSection(after=after),
            memory,
            say=lambda text, _level: self.said.append(text),
            background=False,
            clock=lambda: self.now,
            working=lambda: 0.0,
        )
        self.setting = self.tuner.first()
        self.settings = [self.setting]
        self.watch = Watch()
        self.rounds = 0

    def flow(self, seconds: float, *, accepted: int, round_ms: float, idle: bool = False) -> None:
        """Every second a reading, every second one request of as many rounds as fit; drafts of
        full length, `accepted` tokens of each accepted."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            rounds = max(1, round(1000.0 / round_ms))
            if self.setting.speculation.on:
                n_max = self.setting.speculation.n_max
                took = min(accepted, n_max)
                counted = Counters(
                    rounds,
                    rounds * n_max,
                    rounds * took,
                    tuple(rounds if i < took else 0 for i in range(n_max)),
                    rounds * (took + 1),
                    rounds * round_ms / 1000.0,
                )
            else:
                rounds = round(1000.0 / PLAIN_MS)
                counted = Counters(0, 0, 0, (), rounds, rounds * PLAIN_MS / 1000.0)
            self.rounds += rounds
            watch = self.watch
            watch.total = add(watch.total, counted)
            watch.began = watch.began if watch.began is not None else self.now
            watch.busy_now, watch.depth_now = 1, 10.0
            watch._readings, watch._depth_sum, watch._busy_sum = 1, 10.0, 1
            watch._idle_readings = 10 if idle else 0
            better = self.tuner.reconsider(self.setting, watch)
            if better is not None:
                self.setting = better
                self.settings.append(better)
                self.watch = Watch()
                self.now += 3.0

    @property
    def decision(self) -> Decision:
        assert self.tuner.decision is not None
        return self.tuner.decision


def test_a_setting_slower_than_plain_is_replaced_by_plain_within_two_hundred_rounds() -> None:
    traffic = Traffic()
    assert traffic.setting.speculation.on
    traffic.flow(40.0, accepted=1, round_ms=3.0 * PLAIN_MS)
    assert not traffic.setting.speculation.on
    assert traffic.rounds <= 200 + 40 * 25
    assert traffic.decision.option == PLAIN
    second = traffic.settings[1]
    assert "measured slower than plain" in second.reason
    assert any("restart without a draft" in text for text in traffic.said)


def test_what_failed_is_not_tried_again_while_nothing_changes() -> None:
    traffic = Traffic()
    traffic.flow(900.0, accepted=1, round_ms=3.0 * PLAIN_MS)
    assert [one.speculation.on for one in traffic.settings] == [True, False]


def test_stationary_traffic_as_predicted_changes_nothing() -> None:
    traffic = Traffic()
    traffic.flow(150.0, accepted=DRAFTED, round_ms=67.0)
    assert len(traffic.settings) == 1
    assert traffic.decision.action == "keep"


def test_a_rate_within_the_doubt_is_no_reason_to_give_up() -> None:
    traffic = Traffic()
    traffic.flow(150.0, accepted=1, round_ms=2.0 * PLAIN_MS * 1.02)
    assert all(one.speculation.on for one in traffic.settings) or "slower" not in " ".join(
        traffic.said
    )


def test_shorter_drafts_come_into_force_when_long_ones_are_not_accepted() -> None:
    traffic = Traffic()
    before = traffic.setting.speculation
    traffic.flow(240.0, accepted=2, round_ms=67.0)
    assert len(traffic.settings) == 2
    after = traffic.setting.speculation
    assert after.on
    assert after.n_max < before.n_max
    assert "tokens, the restart costs" in traffic.setting.reason


def test_a_pinned_type_stays_whatever_it_measures() -> None:
    traffic = Traffic(type="draft-simple", n_max=8, p_min=0.0, n_min=0)
    traffic.flow(150.0, accepted=1, round_ms=PLAIN_MS * 4)
    assert len(traffic.settings) == 1
    assert "pinned" in traffic.decision.reason or traffic.decision.action == "keep"


def test_plain_decoding_comes_and_goes_by_the_users_word() -> None:
    traffic = Traffic()
    traffic.flow(10.0, accepted=DRAFTED, round_ms=67.0)
    traffic.tuner.force_plain(True)
    traffic.flow(2.0, accepted=DRAFTED, round_ms=67.0)
    assert not traffic.setting.speculation.on
    assert traffic.setting.sources["type"] == "pinned"
    traffic.flow(240.0, accepted=DRAFTED, round_ms=67.0)
    assert len(traffic.settings) == 2
    assert not traffic.tuner.first().speculation.on
    traffic.tuner.force_plain(False)
    traffic.flow(2.0, accepted=DRAFTED, round_ms=67.0)
    assert traffic.setting.speculation.on


@pytest.mark.parametrize("config", [{"draft": None}, {"type": "off"}, {"type": "ngram-mod"}])
def test_where_nothing_can_be_weighed_only_the_users_word_counts(config: dict[str, Any]) -> None:
    traffic = Traffic(**config)
    first = traffic.setting
    traffic.flow(100.0, accepted=1, round_ms=PLAIN_MS)
    assert traffic.setting is first
    traffic.tuner.force_plain(True)
    traffic.flow(2.0, accepted=1, round_ms=PLAIN_MS)
    assert not traffic.setting.speculation.on
    traffic.tuner.force_plain(False)
    traffic.flow(2.0, accepted=1, round_ms=PLAIN_MS)
    assert traffic.setting.speculation == first.speculation
