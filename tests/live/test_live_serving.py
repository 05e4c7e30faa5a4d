"""The live policy as the daemon uses it: proven, learning, steering; or refused and said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autospec.calibration.prepare import prepare
from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon.choose import Model
from autospec.daemon.events import Events
from autospec.daemon.lifecycle import Phase
from autospec.daemon.supervisor import Supervisor
from autospec.daemon.terms import Charge
from autospec.daemon.tuner import Tuner
from autospec.engine.launch import Endpoint, Launch
from autospec.engine.live import build
from autospec.engine.live.build import LiveUnavailable
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Round

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = [pytest.mark.real, pytest.mark.live]

DRAFTED = 6
REHEARSED = 40
PROMPTS = ("Name three rivers.", "Count to fifteen.", "What is bread made of?")


def tuner_of(models: DemoModels) -> Tuner:
    """Costs that make drafting pay; they are not those of this machine, and need not be."""
    calibration = Calibration(
        key="k",
        model="m",
        made_at=0.0,
        seconds=1.0,
        engine_version="1",
        max_draft=DRAFTED,
        target=tuple(StepTime(b, 0, 40.0 + b, 0.1, 5) for b in range(1, DRAFTED + 2)),
        draft=tuple(StepTime(b, 0, 2.0, 0.01, 5) for b in range(1, DRAFTED + 2)),
        rounds=(Round((0.8,) * DRAFTED, 3, 12.0, 50.0),) * REHEARSED,
    )
    config = ModelConfig(path=str(models.draft), draft=str(models.draft_one_dropped), context=512)
    model = Model(config, 512, calibration, live=True)
    return Tuner(model, RetuneSection(after=3600))


async def serving(
    engine: Engine, models: DemoModels, tuner: Tuner, folder: Path, events: Events
) -> Supervisor:
    """Serve a few prompts, let the daemon look at the rounds, and stop."""
    launch = Launch("m", model=models.draft, draft=models.draft_one_dropped, context=512)
    prepared = prepare(engine, launch, {})
    charge = Charge(engine, prepared.launch, Endpoint(socket=folder / "s.sock"), prepared.env, 120)
    owner = Supervisor(charge, tuner.first(), events, tuner.reconsider, live=tuner)
    task = asyncio.create_task(owner.run())
    try:
        await until(lambda: owner.life.phase is Phase.READY, task)
        assert owner.server is not None
        for prompt in PROMPTS:
            await owner.server.chat(prompt, tokens=32, within=120)
        await until(lambda: owner.watch.total.predicted > 32, task)
        if tuner.steering is not None:
            await until(lambda: learnt(tuner), task)
        assert owner.watch.total.drafts > 0
    finally:
        owner.stop(hurry=True)
        await task
    return owner


def learnt(tuner: Tuner) -> bool:
    """Whether more is known than the rehearsal told; the daemon looks every few seconds."""
    return tuner.advisor is not None and tuner.advisor.knowledge.belief.observed > REHEARSED


async def until(reached: Callable[[], bool], task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(180):
        while not reached():
            assert not task.done()
            await asyncio.sleep(0.05)


def test_a_proven_engine_is_steered_and_its_rounds_are_learnt_from(
    engine: Engine, models: DemoModels, isolated: Path
) -> None:
    events, tuner = Events(), tuner_of(models)
    owner = asyncio.run(serving(engine, models, tuner, isolated, events))
    said = [event.text for event in events.kept]
    assert any("the live policy works" in text for text in said)
    assert owner.setting.live
    assert tuner.why_not_live is None
    steering = tuner.steering
    assert steering is not None
    assert steering.rounds >= len(PROMPTS)
    assert steering.solved is not None
    assert tuner.advisor is not None
    assert learnt(tuner)
    assert tuner.advisor.against_plain.rounds > 0


def test_an_engine_that_cannot_be_steered_serves_with_flags_and_says_why(
    engine: Engine, models: DemoModels, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Path:
        raise LiveUnavailable("there is no C compiler")

    monkeypatch.setattr(build, "library", none)
    events, tuner = Events(), tuner_of(models)
    owner = asyncio.run(serving(engine, models, tuner, isolated, events))
    assert not owner.setting.live
    assert owner.setting.speculation.on
    assert tuner.why_not_live == "there is no C compiler"
    assert any("no live policy: there is no C compiler" in event.text for event in events.kept)


def test_a_library_that_is_not_loaded_is_found_out_and_the_child_launched_again(
    engine: Engine, models: DemoModels, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = isolated / "none.so"
    monkeypatch.setattr(build, "library", lambda: missing)
    events, tuner = Events(), tuner_of(models)
    owner = asyncio.run(serving(engine, models, tuner, isolated, events))
    assert not owner.setting.live
    assert "was not loaded" in (tuner.why_not_live or "")
    assert os.environ.get("LD_PRELOAD") is None
