"""What was learned comes back as it was, and what cannot be is refused."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_tuner import DRAFTED, PLAIN_MS, Traffic

from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon.memory import Memory
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.retuning.lessons import (
    WEAK,
    acceptance,
    believed,
    from_json,
    lineage,
    to_json,
    trials_from_json,
    trials_to_json,
)
from autospec.daemon.retuning.trials import Regime, Trial, Trials
from autospec.daemon.setting import Basis
from autospec.daemon.tuner import Tuner
from autospec.state.recorder import Recorder
from autospec.state.store import Store
from autospec.tuning.observations import Round

BASIS = Basis(200.0, 1, 70)


def taught() -> tuple[Knowledge, Knowledge]:
    """What a calibration knows, and what traffic made of it."""
    traffic = Traffic()
    traffic.flow(40.0, accepted=3, round_ms=80.0)
    advisor = traffic.tuner.advisor
    assert advisor is not None
    rounds = [Round((0.9, 0.4), 1, 3.0, 50.0)] * 30
    return traffic.tuner.model.knowledge, advisor.knowledge.with_accepted(rounds)


FRESH, TAUGHT = taught()
COUNTED = replace(TAUGHT, counted=(), counted_under=None)


def test_everything_learned_comes_back() -> None:
    document = json.loads(json.dumps(to_json(TAUGHT, BASIS), allow_nan=False))
    back, traffic = from_json(document, FRESH)
    assert traffic == BASIS
    np.testing.assert_allclose(back.survival.means, TAUGHT.survival.means)
    assert back.costs.at(BASIS).plain_ms == pytest.approx(TAUGHT.costs.at(BASIS).plain_ms)
    np.testing.assert_allclose(
        back.costs.at(BASIS).verify_ms, TAUGHT.costs.at(BASIS).verify_ms, rtol=0.02
    )
    assert abs(back.costs.at(BASIS).verify_ms[3] / FRESH.costs.at(BASIS).verify_ms[3] - 1) > 0.1


def test_counts_under_flags_come_back_too() -> None:
    traffic = Traffic()
    traffic.flow(20.0, accepted=3, round_ms=80.0)
    assert traffic.tuner.advisor is not None
    known = traffic.tuner.advisor.knowledge
    back, _ = from_json(json.loads(json.dumps(to_json(known, None))), FRESH)
    np.testing.assert_allclose(back.survival.means, known.survival.means, rtol=1e-6)


def test_acceptance_under_another_engine_is_worth_little() -> None:
    weak = believed(acceptance(TAUGHT.belief), DRAFTED, worth=WEAK)
    assert weak.observed == pytest.approx(min(WEAK, TAUGHT.belief.observed))
    longer = believed(acceptance(TAUGHT.belief), DRAFTED + 4)
    assert longer.n_max == DRAFTED + 4


def test_trials_come_back() -> None:
    trials = Trials().blamed("live thresholds", Regime(4, 2), Trial(0.9, 0.8))
    assert trials_from_json(json.loads(json.dumps(trials_to_json(trials)))) == trials


def broken(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(to_json(TAUGHT, BASIS))
    change(document)
    return document


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("acceptance"),
        lambda d: d["acceptance"].update(hits=[[1e9] * 22] * 8),
        lambda d: d["acceptance"].update(trials=[[float("nan")] * 22]),
        lambda d: d["acceptance"].update(trials=[["x"]]),
        lambda d: d["acceptance"].update(rounds=-1),
        lambda d: d["acceptance"].update(rounds=True),
        lambda d: d.update(plain=[0.0, -1.0, 1.0]),
        lambda d: d.update(plain=[1e300, 1.0, 1.0]),
        lambda d: d.update(plain=3),
        lambda d: d.update(verifying=[[[1.0, 2.0], [0.1]]]),
        lambda d: d.update(verifying=[[[1.0, 2.0, 1e9], [0.1]]]),
        lambda d: d.update(verifying=[[[1.0, 2.0, 3.0], ["x"]]]),
        lambda d: d.update(epoch=-1),
        lambda d: d.update(epoch="1"),
        lambda d: d.update(traffic=[1.0, 0, 1]),
        lambda d: d.update(traffic=[1.0, float("inf"), 1]),
        lambda d: d.update(counted={"under": [1, 1, 9]}),
        lambda d: d.update(counted=7),
    ],
)
def test_what_cannot_be_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        from_json(broken(change), FRESH)


def test_any_damage_gives_knowledge_or_a_refusal() -> None:
    chance = random.Random(4)
    text = json.dumps(to_json(TAUGHT, BASIS))
    for _ in range(60):
        at = chance.randrange(len(text))
        damaged = text[:at] + chance.choice('0-9.eE"[]{},:x') + text[at + 1 :]
        try:
            document = json.loads(damaged)
            back, _ = from_json(document, FRESH)
        except (ValueError, TypeError, KeyError):
            continue
        assert np.all(np.isfinite(back.costs.at(BASIS).verify_ms))
        assert np.all((back.belief.q >= 0) & (back.belief.q <= 1))


def test_the_lineage_is_that_of_the_files(tmp_path: Path) -> None:
    target, draft = tmp_path / "t.gguf", tmp_path / "d.gguf"
    config = ModelConfig(path=str(target), draft=str(draft))
    assert lineage(config) is None
    target.write_bytes(b"target")
    draft.write_bytes(b"draft")
    first = lineage(config)
    assert first is not None
    assert first == lineage(config)
    draft.write_bytes(b"another draft")
    assert lineage(config) != first


def test_the_next_life_of_the_daemon_knows_what_this_one_learned() -> None:
    recorder = Recorder(Store.open())
    memory = Memory(recorder)
    traffic = Traffic(memory=memory)
    traffic.flow(70.0, accepted=1, round_ms=3.0 * PLAIN_MS)
    assert not traffic.setting.speculation.on
    assert recorder.flush()
    assert any(one["option"] == "plain decoding" for one in memory.decisions("model"))
    again = Tuner(traffic.fresh, RetuneSection(), memory, background=False)
    assert not again.first().speculation.on
    assert again.advisor is not None
    assert again.advisor.trials.failed
    assert Tuner(traffic.fresh, RetuneSection(), background=False).first().speculation.on
    assert recorder.close()
