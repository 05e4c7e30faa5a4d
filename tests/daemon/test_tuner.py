"""A setting that measures slower than plain decoding is given up, whatever was predicted."""

from __future__ import annotations

import time
from typing import Any

import pytest

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon.choose import Model
from autospec.daemon.tuner import Tuner
from autospec.daemon.watch import Watch
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Counters, Round

DRAFTED = 8
PLAIN_MS = 41.0


def tuner(**config: Any) -> Tuner:
    """Costs and rehearsal promise about three times plain decoding (41 ms a token)."""
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
    model = Model(ModelConfig(**fields), 4096, calibration)
    return Tuner(model, RetuneSection(after=0.001))


def traffic(ms_a_token: float, *, idle: bool = True) -> Watch:
    """1000 tokens in 200 rounds, four of five tokens from accepted drafts."""
    total = Counters(200, 1600, 800, (200, 200, 200, 200, 0, 0, 0, 0), 1000, ms_a_token)
    watch = Watch(total=total, began=time.monotonic() - 100)
    watch._readings, watch._depth_sum, watch._busy_sum = 10, 10.0, 10
    watch._idle_readings = 10 if idle else 0
    return watch


def test_a_setting_slower_than_plain_is_replaced_by_plain_and_not_tried_again() -> None:
    one = tuner()
    first = one.first()
    assert first.speculation.on
    better = one.reconsider(first, traffic(PLAIN_MS * 1.3))
    assert better is not None
    assert not better.speculation.on
    assert "none of those tried beats plain" in better.reason
    assert one.decision is not None
    assert one.decision.rate == pytest.approx(1000 / (PLAIN_MS * 1.3))
    assert not one.first().speculation.on


def test_it_waits_until_no_request_is_being_answered() -> None:
    one = tuner()
    first = one.first()
    assert one.reconsider(first, traffic(PLAIN_MS * 1.3, idle=False)) is None
    assert one.decision is not None
    assert one.decision.action == "wait"
    assert one.reconsider(first, traffic(PLAIN_MS * 1.3)) is not None


def test_a_rate_within_the_doubt_is_no_reason_to_give_up() -> None:
    one = tuner()
    better = one.reconsider(one.first(), traffic(PLAIN_MS * 1.02))
    assert better is None or better.speculation.on


def test_a_pinned_type_stays_whatever_it_measures() -> None:
    one = tuner(type="draft-simple")
    better = one.reconsider(one.first(), traffic(PLAIN_MS * 2))
    assert better is None or better.speculation.on
