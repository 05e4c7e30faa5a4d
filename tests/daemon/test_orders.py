from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from supervised import engine_of

from autospec.calibration.prepare import Prepared
from autospec.config.schema import EngineSection, ModelConfig
from autospec.daemon.orders import Change, Order, changes
from autospec.engine.find import Engine
from autospec.engine.launch import Launch

if TYPE_CHECKING:
    from conftest import FakeEngine


@pytest.fixture
def fake(fake_engine: FakeEngine) -> Engine:
    return engine_of(fake_engine)


def order(engine: Engine, **options: object) -> Order:
    config = ModelConfig.model_validate({"path": "m.gguf", **options})
    launch = config.launch("chat")
    return Order(config, EngineSection(), Prepared(engine, launch, {}, 4096, None, None, (), False))


def test_only_what_a_child_was_started_with_restarts_it(fake: Engine) -> None:
    before = {name: order(fake) for name in ("same", "pinned", "longer", "gone")}
    after = {
        "new": order(fake),
        "longer": order(fake, context=8192),
        "pinned": order(fake, n_max=4),
        "same": order(fake),
    }
    assert changes(before, after) == {
        "new": Change.NEW,
        "longer": Change.CHILD,
        "pinned": Change.TUNING,
        "same": Change.NONE,
        "gone": Change.GONE,
    }


def test_another_build_or_environment_of_the_engine_restarts_every_model(fake: Engine) -> None:
    one = order(fake)
    for prepared in (
        replace(one.prepared, engine=replace(fake, identity="another build")),
        replace(one.prepared, env={"CUDA_VISIBLE_DEVICES": "1"}),
        replace(one.prepared, launch=Launch("chat", model=Path("other.gguf"))),
    ):
        assert changes({"chat": one}, {"chat": replace(one, prepared=prepared)}) == {
            "chat": Change.CHILD
        }


def test_a_longer_time_to_start_restarts_nothing(fake: Engine) -> None:
    one = order(fake)
    patient = replace(one, engine=EngineSection(start_timeout=900.0))
    assert changes({"chat": one}, {"chat": patient}) == {"chat": Change.TUNING}
    assert patient.load_seconds == 900.0
