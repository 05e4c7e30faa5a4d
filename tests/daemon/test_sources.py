"""Draft sources besides the draft model: tried on the traffic, kept where they do better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon.choose import Model
from autospec.daemon.memory import Memory
from autospec.daemon.retuning.gate import Gate
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.retuning.sources import (
    CHAIN,
    EVERY,
    NGRAM,
    TRIAL,
    Sources,
    length,
    source_of,
    sources_of,
)
from autospec.daemon.setting import Basis, Setting
from autospec.daemon.tuner import Tuner
from autospec.daemon.watch import Watch, add
from autospec.engine.capabilities import DRAFT_SIMPLE, Capabilities, capabilities
from autospec.engine.launch import Speculation
from autospec.state.recorder import Recorder
from autospec.state.store import Store
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Counters, Round

LONGEST = 8
PLAIN_MS = 41.0
ABLE = replace(capabilities({}), spec_types=(DRAFT_SIMPLE, NGRAM))


def calibration(*, drafted: bool = True) -> Calibration:
    """Of ten drafts six are accepted whole and four not at all."""
    batches = range(1, LONGEST + 2)
    rounds = [Round((0.8,) * LONGEST, LONGEST * (i % 5 < 3), 16.0, 51.0) for i in range(100)]
    return Calibration(
        key="k",
        model="m",
        made_at=0.0,
        seconds=1.0,
        engine_version="1",
        max_draft=LONGEST,
        target=tuple(StepTime(b, 0, 40.0 + b, 0.1, 5) for b in batches),
        draft=tuple(StepTime(b, 0, 2.0, 0.01, 5) for b in batches) if drafted else (),
        rounds=tuple(rounds) if drafted else (),
    )


@dataclass
class Traffic:
    """One slot that always works. `speed` is what each source makes of this text, over plain."""

    speed: dict[str, float]
    idle: bool = True
    able: Capabilities | None = ABLE
    drafted: bool = True
    memory: Memory | None = None
    n_grams: bool = True

    def start(self, **config: Any) -> Traffic:
        draft = {"draft": "d.gguf"} if self.drafted else {}
        fields = {"path": "t.gguf", "context": 4096} | draft | config
        known = calibration(drafted=self.drafted)
        self.now, self.rounds, self.said = 0.0, dict[str, int](), list[str]()
        self.tuner = Tuner(
            Model(ModelConfig(**fields), 4096, known, self.able),
            RetuneSection(after=30.0, n_grams=self.n_grams),
            self.memory,
            say=lambda text, _level: self.said.append(text),
            background=False,
            clock=lambda: self.now,
            working=lambda: 0.0,
        )
        self.setting = self.tuner.first()
        self.history = [self.name]
        self.watch = Watch()
        return self

    @property
    def name(self) -> str:
        return _name(self.setting)

    @property
    def sources(self) -> Sources:
        assert self.tuner.advisor is not None
        return self.tuner.advisor.trying.sources

    def almost_due(self) -> Traffic:
        assert self.tuner.advisor is not None
        trying = self.tuner.advisor.trying
        trying.sources = replace(trying.sources, served=trying.sources.wait - 100)
        return self

    def flow(self, seconds: float) -> Traffic:
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            name, rounds = self.name, 15
            self.rounds[name] = self.rounds.get(name, 0) + rounds
            counted = Counters(0, 0, 0, (), 24, 24 * PLAIN_MS / 1000.0)
            if (n := self.setting.speculation.n_max) > 0:
                # Three rounds in five are accepted whole.
                hits = rounds * 3 // 5
                made = rounds + hits * n
                seconds_ = made * PLAIN_MS / 1000.0 / self.speed[name]
                counted = Counters(rounds, rounds * n, hits * n, (hits,) * n, made, seconds_)
            watch = self.watch
            watch.total = add(watch.total, counted)
            watch.began = watch.began if watch.began is not None else self.now
            watch.busy_now, watch.depth_now = 1, 10.0
            watch._readings, watch._depth_sum, watch._busy_sum = 1, 10.0, 1
            watch._idle_readings = 10 if self.idle else 0
            better = self.tuner.reconsider(self.setting, watch)
            if better is not None:
                self.setting, self.watch = better, Watch()
                self.history.append(self.name)
                self.now += 3.0
        return self


def _name(setting: Setting) -> str:
    return ",".join(setting.speculation.types) or "off"


AS_PREDICTED = 3.55


def test_a_source_that_does_worse_than_the_draft_is_given_up_after_its_trial() -> None:
    traffic = Traffic({DRAFT_SIMPLE: AS_PREDICTED, NGRAM: 1.2, CHAIN: 1.3}).start()
    traffic.almost_due().flow(200.0)
    assert traffic.history == [DRAFT_SIMPLE, NGRAM, DRAFT_SIMPLE]
    assert TRIAL <= traffic.rounds[NGRAM] < 2 * TRIAL
    assert any(f"{NGRAM} on this traffic: 1.20x of plain" in text for text in traffic.said)
    assert traffic.sources.tried[NGRAM].over_plain == pytest.approx(1.2, rel=0.02)


def test_a_draft_model_that_loses_to_ngrams_is_told_of_and_left() -> None:
    speed = {DRAFT_SIMPLE: AS_PREDICTED, NGRAM: 4.5, CHAIN: 3.0}
    traffic = Traffic(speed).start().almost_due().flow(300.0)
    assert traffic.history == [DRAFT_SIMPLE, NGRAM]
    (told,) = [text for text in traffic.said if text.startswith(f"{NGRAM} on this traffic")]
    assert "4.50x of plain" in told
    assert "flags n_max" in told


def test_a_source_slower_than_plain_is_given_up_before_its_trial_is_over() -> None:
    speed = {DRAFT_SIMPLE: AS_PREDICTED, NGRAM: 0.6, CHAIN: 0.6}
    traffic = Traffic(speed).start().almost_due().flow(200.0)
    assert traffic.history == [DRAFT_SIMPLE, NGRAM, DRAFT_SIMPLE]
    assert traffic.sources.tried[NGRAM].over_plain == pytest.approx(0.6, rel=0.05)


def test_both_are_tried_one_after_the_other_and_then_more_and_more_seldom() -> None:
    traffic = Traffic({DRAFT_SIMPLE: AS_PREDICTED, NGRAM: 1.2, CHAIN: 1.3}).start()
    waits = []
    for _ in range(4):
        traffic.almost_due().flow(200.0)
        traffic.now += 3600.0
        waits.append(traffic.sources.wait)
    tried = [name for name in traffic.history if name != DRAFT_SIMPLE]
    assert tried == [NGRAM, CHAIN, CHAIN, CHAIN]
    assert waits == [EVERY, 2 * EVERY, 4 * EVERY, 8 * EVERY]


def test_no_trial_begins_while_requests_run() -> None:
    traffic = Traffic({DRAFT_SIMPLE: AS_PREDICTED}, idle=False).start().almost_due().flow(200.0)
    assert traffic.history == [DRAFT_SIMPLE]
    assert traffic.sources.due == NGRAM


def test_before_its_time_nothing_is_tried() -> None:
    traffic = Traffic({DRAFT_SIMPLE: AS_PREDICTED}).start().flow(200.0)
    assert traffic.history == [DRAFT_SIMPLE]


@pytest.mark.parametrize("pin", [{"type": [DRAFT_SIMPLE]}, {"n_max": 6}, {"p_min": 0.1}])
def test_what_is_pinned_stays(pin: dict[str, Any]) -> None:
    traffic = Traffic({DRAFT_SIMPLE: AS_PREDICTED}).start(**pin)
    assert traffic.almost_due().flow(200.0).history == [DRAFT_SIMPLE]
    assert traffic.sources.names == ()


@pytest.mark.parametrize("able", [None, capabilities({})])
def test_an_engine_without_the_type_is_left_alone(able: Capabilities | None) -> None:
    traffic = Traffic({DRAFT_SIMPLE: AS_PREDICTED}, able=able).start()
    assert traffic.almost_due().flow(200.0).history == [DRAFT_SIMPLE]


def test_the_user_can_do_without() -> None:
    traffic = Traffic({DRAFT_SIMPLE: AS_PREDICTED}, n_grams=False).start()
    assert traffic.almost_due().flow(200.0).history == [DRAFT_SIMPLE]


@pytest.mark.parametrize(
    ("speed", "history"), [(1.6, ["off", NGRAM]), (0.7, ["off", NGRAM, "off"])]
)
def test_a_model_without_a_draft_is_given_the_chance(speed: float, history: list[str]) -> None:
    traffic = Traffic({NGRAM: speed}, drafted=False).start().almost_due().flow(200.0)
    assert traffic.history == history


def test_what_was_found_outlives_the_daemon() -> None:
    speed = {DRAFT_SIMPLE: AS_PREDICTED, NGRAM: 4.5, CHAIN: 3.0}
    recorder = Recorder(Store.open())
    traffic = Traffic(speed, memory=Memory(recorder)).start().almost_due().flow(300.0)
    assert traffic.name == NGRAM
    recorder.flush()
    again = Traffic(speed, memory=Memory(recorder)).start()
    assert recorder.close()
    assert again.name == NGRAM
    assert again.sources.tried == traffic.sources.tried


@pytest.mark.parametrize(
    "junk",
    [
        {},
        {"tried": 3, "served": 0, "wait": EVERY},
        {"tried": {NGRAM: [1.0, float("nan"), 3]}, "served": 0, "wait": EVERY},
        {"tried": {NGRAM: [1.0]}, "served": 0, "wait": EVERY},
        {"tried": {}, "served": -1, "wait": EVERY},
        {"tried": {}, "served": 0, "wait": 1},
    ],
)
def test_junk_is_refused(junk: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        Sources((NGRAM,)).with_json(junk)


def test_a_source_that_is_no_longer_there_is_forgotten() -> None:
    gate = Gate().step([2], 1.0)
    kept = Sources((NGRAM, CHAIN)).judged(CHAIN, gate, won=True).to_json()
    assert Sources((NGRAM,)).with_json(kept).tried == {}


def test_a_change_of_text_makes_everything_worth_another_trial() -> None:
    judged = Sources((NGRAM,)).judged(NGRAM, Gate().step([2], 1.0), won=True)
    assert judged.tried
    assert judged.forgotten().tried == {}


def test_a_trial_without_a_measurement_is_none() -> None:
    with pytest.raises(ValueError, match="measures"):
        Sources((NGRAM,)).judged(NGRAM, Gate(), won=False)


def test_drafts_are_as_long_as_pays_where_text_repeats() -> None:
    steep = replace(
        calibration(),
        target=tuple(StepTime(b, 0, 40.0 if b < 4 else 40.0 * b, 0.1, 5) for b in range(1, 10)),
    )
    assert length(Knowledge.of(steep, LONGEST), Basis()) == 2
    assert length(Knowledge.of(calibration(), LONGEST), Basis()) == LONGEST


def test_sources_have_names() -> None:
    assert source_of(Speculation()) is None
    assert source_of(Speculation((DRAFT_SIMPLE,), 3)) is None
    assert source_of(Speculation((NGRAM, DRAFT_SIMPLE), 3)) == CHAIN
    assert sources_of(ABLE, drafted=True) == (NGRAM, CHAIN)
    assert sources_of(ABLE, drafted=False) == (NGRAM,)
    assert sources_of(None, drafted=True) == ()
