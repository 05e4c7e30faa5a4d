"""The tuner on the real engine: what it follows, what it leaves alone, what it gives up.

Costs start from made-up figures, or from one short measurement; the tuner learns the real ones.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autospec.calibration.prepare import prepare
from autospec.calibration.prompts import prompts
from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon.choose import Model
from autospec.daemon.events import Events
from autospec.daemon.lifecycle import Phase
from autospec.daemon.retuning.exploring import FIRST
from autospec.daemon.retuning.gate import FEWEST
from autospec.daemon.retuning.sources import EVERY, NGRAM
from autospec.daemon.retuning.steps import Step
from autospec.daemon.steering import Solved, Steering
from autospec.daemon.supervisor import Supervisor
from autospec.daemon.terms import Charge
from autospec.daemon.tuner import Tuner
from autospec.engine.arguments import server_argv
from autospec.engine.launch import PLAIN, Endpoint, Launch
from autospec.engine.live.applier import LiveSession
from autospec.engine.server import Server
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Round

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = [pytest.mark.real, pytest.mark.retune]

DRAFTED = 8
PATIENCE = 900.0
WORDS = tuple(prompt.text for prompt in prompts("learning"))


def calibration(plain_ms: float, token_ms: float, draft_ms: float, accepted: int) -> Calibration:
    """A batch of b takes plain_ms + token_ms·(b − 1)."""
    totals = [*range(1, DRAFTED + 2), 12, 16, 24, 36]
    return Calibration(
        key="retune",
        model="m",
        made_at=0.0,
        seconds=1.0,
        engine_version="1",
        max_draft=DRAFTED,
        target=tuple(StepTime(b, 0, plain_ms + token_ms * (b - 1), 0.5, 5) for b in totals),
        draft=tuple(StepTime(b, 0, draft_ms, 0.1, 5) for b in totals),
        rounds=(
            Round((0.9,) * DRAFTED, accepted, DRAFTED * draft_ms, plain_ms + DRAFTED * token_ms),
        )
        * 60,
    )


class Run:
    """A supervised child, and what its rounds were like."""

    def __init__(self, owner: Supervisor, tuner: Tuner, events: Events) -> None:
        self.owner = owner
        self.tuner = tuner
        self.events = events
        self.steps: list[Step] = []

    async def chat(self, *texts: str, tokens: int = 48, at_once: int = 1) -> None:
        """Ask each text, `at_once` of them side by side; one that met a restart is asked again."""
        for start in range(0, len(texts), at_once):
            await asyncio.gather(
                *(self._ask(text, tokens) for text in texts[start : start + at_once])
            )

    async def _ask(self, text: str, tokens: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                server = self.owner.server
                if server is not None and self.owner.life.phase is Phase.READY:
                    try:
                        await server.chat(text, tokens=tokens, within=PATIENCE)
                    except Exception:  # noqa: BLE001 - a restart came between
                        await asyncio.sleep(0.2)
                    else:
                        return
                await asyncio.sleep(0.2)

    async def plain(self) -> None:
        """Until a child without a draft serves, which has been decided."""
        deadline = time.monotonic() + PATIENCE
        while self.owner.setting.speculation.on:
            assert time.monotonic() < deadline, texts(self.events)
            await asyncio.sleep(0.2)

    def drafted(self, busy: int, last: int = 40) -> float:
        """Mean drafted tokens of a slot in the last steps of `busy` slots."""
        lengths = [step.batch - 1.0 for step in self.steps if step.busy == busy]
        return statistics.fmean(lengths[-last:])


@asynccontextmanager
async def running(
    engine: Engine,
    config: ModelConfig,
    known: Calibration,
    folder: Path,
    *,
    live: bool = True,
    **rules: float,
) -> AsyncIterator[Run]:
    launch = Launch(
        "m", model=config.path, draft=config.draft, context=config.context, slots=config.slots
    )
    prepared = prepare(engine, launch, {})
    model = Model(config, config.context, known, engine.capabilities, live=live)
    events = Events()
    tuner = Tuner(
        model,
        RetuneSection(**{"after": 5.0, **rules}),
        say=lambda text, level: events.add(text, model="m", level=level),
    )
    charge = Charge(engine, prepared.launch, Endpoint(socket=folder / "s.sock"), prepared.env, 600)
    owner = Supervisor(charge, tuner.first(), events, tuner.reconsider, live=tuner)
    run = Run(owner, tuner, events)
    read = Steering.read

    def listening(steering: Steering, session: LiveSession) -> list[Step]:
        steps = read(steering, session)
        run.steps += steps
        return steps

    Steering.read = listening  # type: ignore[method-assign]
    task = asyncio.create_task(owner.run())
    try:
        yield run
    finally:
        Steering.read = read  # type: ignore[method-assign]
        owner.stop(hurry=True)
        await task


def steering_of(run: Run) -> Solved:
    assert run.tuner.steering is not None
    solved = run.tuner.steering.solved
    assert solved is not None
    return solved


def texts(events: Events) -> str:
    return "\n".join(event.text for event in events.kept)


async def plain_ms(engine: Engine, model: Path, folder: Path) -> float:
    """What plain decoding takes a token."""
    endpoint = Endpoint(socket=folder / "plain.sock")
    argv = server_argv(engine, Launch("m", model=model, context=1024), PLAIN, endpoint)
    async with await Server.start(argv, dict(os.environ), endpoint) as server:
        await server.ready(within=600)
        rates = []
        for text in WORDS[:3]:
            timings = (await server.chat(text, tokens=24, within=PATIENCE)).timings
            rates.append(timings.tokens_per_second or 0.0)
    return 1000.0 / statistics.median(rates)


def test_load_moves_the_live_policy_without_a_restart(
    engine: Engine, models: DemoModels, isolated: Path
) -> None:
    """Plain decoding is said to be so slow that it never comes into question."""
    config = ModelConfig(
        path=str(models.draft), draft=str(models.draft_one_dropped), context=2048, slots=4
    )
    known = calibration(400.0, 2.0, 4.0, accepted=3)

    async def main() -> None:
        async with running(engine, config, known, isolated) as run:
            await run.chat(*WORDS[:8])
            alone = run.drafted(1)
            await run.chat(*WORDS[8:16], at_once=4)
            together = run.drafted(4)
            assert run.owner.setting.live, texts(run.events)
            assert run.owner.restarts == 0, texts(run.events)
            assert steering_of(run).at(1, 200.0) != steering_of(run).at(4, 200.0)
            assert abs(together - alone) > 0.05 * alone
            advisor = run.tuner.advisor
            assert advisor is not None
            assert advisor.knowledge.costs.live.observed > 20
            assert not any("restart" in one.decision.action for one in advisor.decisions)
            assert {basis.busy for basis, _ in advisor.moments.mixture()} >= {1}
            steering = run.tuner.steering
            assert steering is not None
            assert steering.budget.explored <= 0.01 * steering.budget.rounds + FIRST
            document = await run.tuner.explain(run.owner.setting)
            assert document["applier"]["name"] == "live"
            assert document["measured"]["rounds"] > 0

    asyncio.run(main())


def test_two_thousand_rounds_of_one_kind_of_traffic_change_no_setting(
    engine: Engine, models: DemoModels, isolated: Path
) -> None:
    """It starts from made-up costs and learns the real ones. Thresholds may follow the load, which
    falls whenever four requests end; the child stays."""
    config = ModelConfig(
        path=str(models.draft), draft=str(models.draft_one_dropped), context=4096, slots=4
    )
    known = calibration(400.0, 2.0, 4.0, accepted=3)

    async def main() -> None:
        async with running(engine, config, known, isolated) as run:
            steering = None
            while steering is None or steering.budget.rounds < 2000:
                await run.chat(*WORDS, tokens=128, at_once=4)
                steering = run.tuner.steering
            advisor = run.tuner.advisor
            assert advisor is not None
            told = texts(run.events)
            assert run.owner.setting.live, told
            assert run.owner.restarts == 0, told
            assert {one.decision.action for one in advisor.decisions} <= {"keep", "change live"}
            assert 1 <= steering.budget.explored <= 0.01 * steering.budget.rounds + FIRST

    asyncio.run(main())


def test_a_draft_that_was_sabotaged_is_rolled_back(
    engine: Engine, models: DemoModels, isolated: Path
) -> None:
    """The draft's file is another one at the restart after a crash: a bad draft.

    By flags: thresholds inside the engine stop drafting, and what is lost then is too little to be
    sure of within a test.
    """
    draft = isolated / "draft.gguf"
    draft.symlink_to(models.draft)
    config = ModelConfig(path=str(models.target), draft=str(draft), context=1024)

    async def main() -> None:
        ms = await plain_ms(engine, models.target, isolated)
        known = calibration(ms, 0.2 * ms, 0.1 * ms, accepted=5)
        async with running(engine, config, known, isolated, live=False, after=3600.0) as run:
            await run.chat(*WORDS[:3])
            assert run.owner.setting.speculation.on, texts(run.events)
            draft.unlink()
            draft.symlink_to(models.draft_three_dropped)
            server = run.owner.server
            assert server is not None
            server.kill()
            for text in WORDS[3:]:
                await run.chat(text, tokens=64)
                if "restart without a draft" in texts(run.events):
                    break
            await run.plain()
            assert "measured slower than plain decoding" in texts(run.events)

    asyncio.run(main())


def test_ngrams_are_tried_on_the_traffic_and_what_they_did_is_told(
    engine: Engine, models: DemoModels, isolated: Path
) -> None:
    config = ModelConfig(path=str(models.draft), draft=str(models.draft_one_dropped), context=1024)
    text = "Repeat this sentence ten times: the cat sat on the mat and looked at the dog."

    async def main() -> None:
        ms = await plain_ms(engine, models.draft, isolated)
        known = calibration(ms, 0.2 * ms, 0.5 * ms, accepted=4)
        async with running(engine, config, known, isolated, max_restarts_per_hour=60) as run:
            assert run.tuner.advisor is not None
            trying = run.tuner.advisor.trying
            trying.sources = replace(trying.sources, served=EVERY)
            drafted = 0
            deadline = time.monotonic() + PATIENCE
            while f"{NGRAM} on this traffic: " not in texts(run.events):
                assert time.monotonic() < deadline, texts(run.events)
                await run.chat(text, tokens=64)
                if NGRAM in run.owner.setting.speculation.types:
                    drafted = run.owner.watch.total.drafted
                else:
                    await asyncio.sleep(2.0)
            assert drafted > 0, texts(run.events)
            assert f"try a source: {NGRAM} is tried" in texts(run.events)
            (tried,) = trying.sources.tried.values()
            assert tried.rounds >= FEWEST
            await run.chat(text, tokens=16)

    asyncio.run(main())
