"""A calibration, a tuner, an owner and a child: one restart, when idle, if it pays."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from supervised import Nursery, charge_of, supervised

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon import retune, supervisor
from autospec.daemon.choose import Model
from autospec.daemon.lifecycle import Phase
from autospec.daemon.memory import Memory
from autospec.daemon.tuner import Tuner
from autospec.engine.launch import Endpoint
from autospec.state.recorder import Recorder
from autospec.state.store import Store
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Round

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

DRAFTED = 8
PAIR = {"path": "m.gguf", "draft": "d.gguf"}


def optimistic() -> Calibration:
    """The rehearsal saw every token accepted, so that it pays to draft far."""
    batches = range(1, DRAFTED + 2)
    return Calibration(
        key="k",
        model="m",
        made_at=0.0,
        seconds=1.0,
        engine_version="1",
        max_draft=DRAFTED,
        target=tuple(StepTime(b, 0, 20.0 + 8 * b, 0.1, 5) for b in batches),
        draft=tuple(StepTime(b, 0, 2.0, 0.01, 5) for b in batches),
        rounds=(Round((0.8,) * DRAFTED, DRAFTED, 16.0, 92.0),) * 20,
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(retune, "AGAIN_SECONDS", 0.1)


@pytest.fixture
def endpoint(free_port: int) -> Endpoint:
    return Endpoint(port=free_port)


def tuner_of(memory: Memory | None = None, **settings: float) -> Tuner:
    config = ModelConfig(**PAIR, context=4096)
    return Tuner(Model(config, 4096, optimistic()), RetuneSection(after=0.1, **settings), memory)


async def talk(endpoint: Endpoint, *, tokens: int, times: int = 1) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{endpoint.port}") as client:
        for _ in range(times):
            asked = {"prompt": "a", "n_predict": tokens}
            (await client.post("/completion", json=asked, timeout=60)).raise_for_status()


async def talk_on(endpoint: Endpoint) -> None:
    """A request that goes on until this is cancelled."""
    url = f"http://127.0.0.1:{endpoint.port}/completion"
    asked = {"prompt": "a", "n_predict": 10**9, "stream": True}
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", url, json=asked) as answer,
    ):
        async for _ in answer.aiter_bytes():
            pass


def starts(fake: FakeEngine) -> list[bool]:
    """Of each start so far, whether it speculates."""
    return ["draft-simple" in start["argv"] for start in fake.starts()]


async def settled(it: Nursery, tuner: Tuner) -> None:
    """Wait until the tuner has thought about the present traffic some times more."""
    seen = []
    for _ in range(3):
        seen.append(tuner.decision)
        await it.until(lambda: tuner.decision is not seen[-1])


def test_a_draft_that_fails_in_real_traffic_is_dropped_once_and_only_when_idle(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(survival=[0.0] * DRAFTED)
    recorder = Recorder(Store.open())
    memory = Memory(recorder)
    tuner = tuner_of(memory)

    async def main() -> None:
        async with supervised(
            charge_of(fake_engine, endpoint, slots=2), tuner.first(), tuner.reconsider
        ) as it:
            await it.until(Phase.READY)
            await it.until(lambda: it.supervisor.watch.idle)
            long = asyncio.create_task(talk_on(endpoint))
            await it.until(lambda: it.supervisor.watch.busy_now == 1)
            await talk(endpoint, tokens=30, times=4)
            await it.until(lambda: tuner.decision and tuner.decision.action == "wait")
            await settled(it, tuner)
            assert "as soon as no request runs" in tuner.decision.reason
            assert starts(fake_engine) == [True]
            long.cancel()
            await it.until(lambda: it.said("ready: ") == 2)
            assert starts(fake_engine) == [True, False]
            assert it.supervisor.restarts == 1
            await it.until(lambda: it.supervisor.watch.idle)
            await talk(endpoint, tokens=300, times=2)
            await settled(it, tuner)
            assert starts(fake_engine) == [True, False]

    asyncio.run(main())
    assert recorder.flush()
    # The plain child's epoch knows acceptance from the one before.
    for learned in memory.epochs("k"):
        assert learned.counters.accepted == 0
        assert learned.counters.drafts >= 50
    learned = memory.learned("k")
    assert recorder.close()
    assert learned is not None
    model = Model(ModelConfig(**PAIR, context=4096), 4096, optimistic(), learned)
    assert not Tuner(model, RetuneSection()).first().speculation.on


@pytest.mark.parametrize(
    ("settings", "survival", "words"),
    [
        ({"max_restarts_per_hour": 0}, [0.0] * DRAFTED, "restarts of this hour are used"),
        ({"min_gain": 1.0}, [0.5] * DRAFTED, "100% to gain"),
    ],
)
def test_what_does_not_pay_or_is_not_allowed_is_left_alone(
    fake_engine: FakeEngine,
    endpoint: Endpoint,
    settings: dict[str, float],
    survival: list[float],
    words: str,
):
    fake_engine.script_server(survival=survival)
    tuner = tuner_of(**settings)

    async def main() -> None:
        async with supervised(
            charge_of(fake_engine, endpoint), tuner.first(), tuner.reconsider
        ) as it:
            await it.until(Phase.READY)
            await it.until(lambda: it.supervisor.watch.idle)
            await talk(endpoint, tokens=200, times=3)
            await it.until(lambda: tuner.decision)
            await settled(it, tuner)
            assert tuner.decision is not None
            assert tuner.decision.action == "keep"
            assert words in tuner.decision.reason
            assert starts(fake_engine) == [True]

    asyncio.run(main())
