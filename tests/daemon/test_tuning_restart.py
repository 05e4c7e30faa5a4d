"""A calibration, a tuner, an owner and a child: one restart, when idle, if it pays."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import httpx
import pytest
from supervised import Nursery, charge_of, supervised

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon import tuner
from autospec.daemon.choose import Model
from autospec.daemon.lifecycle import Phase
from autospec.daemon.tuner import Tuner
from autospec.engine.launch import Endpoint
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Round

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

DRAFTED = 8
PAIR = {"path": "m.gguf", "draft": "d.gguf"}


def optimistic() -> Calibration:
    """Plain decoding at 1.4 ms a token; the rehearsal saw every drafted token accepted."""
    batches = range(1, DRAFTED + 2)
    return Calibration(
        key="k",
        model="m",
        made_at=0.0,
        seconds=1.0,
        engine_version="1",
        max_draft=DRAFTED,
        target=tuple(StepTime(b, 0, 1.0 + 0.4 * b, 0.01, 5) for b in batches),
        draft=tuple(StepTime(b, 0, 0.1, 0.001, 5) for b in batches),
        rounds=(Round((0.8,) * DRAFTED, DRAFTED, 0.8, 4.6),) * 20,
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "LOOK_SECONDS", 0.1)


@pytest.fixture
def endpoint(free_port: int) -> Endpoint:
    return Endpoint(port=free_port)


def tuner_of(**settings: float) -> Tuner:
    config = ModelConfig(**PAIR, context=4096)
    return Tuner(Model(config, 4096, optimistic()), RetuneSection(after=0.1, **settings))


async def talk(endpoint: Endpoint, *, tokens: int, times: int = 1) -> None:
    """So many requests; one that a restart met is asked again."""
    left = times
    while left:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{endpoint.port}") as client:
            with contextlib.suppress(httpx.TransportError):
                asked = {"prompt": "a", "n_predict": tokens}
                answer = await client.post("/completion", json=asked, timeout=60)
                left -= answer.status_code == 200
        await asyncio.sleep(0.01)


def starts(fake: FakeEngine) -> list[bool]:
    """Of each start so far, whether it speculates."""
    return ["draft-simple" in start["argv"] for start in fake.starts()]


async def settled(it: Nursery, tuning: Tuner) -> None:
    """Wait until the tuner has thought about the present traffic some times more."""
    seen = []
    for _ in range(3):
        seen.append(tuning.decision)
        await it.until(lambda: tuning.decision is not seen[-1])


def test_a_draft_that_fails_in_real_traffic_is_dropped_within_two_hundred_rounds_and_once(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(survival=[0.0] * DRAFTED, token_ms=4)
    tuning = tuner_of()

    async def main() -> None:
        async with supervised(
            charge_of(fake_engine, endpoint, slots=2), tuning.first(), tuning.reconsider
        ) as it:
            await it.until(Phase.READY)
            await it.until(lambda: it.supervisor.watch.idle)
            await talk(endpoint, tokens=50, times=4)
            await it.until(lambda: it.said("ready: ") == 2)
            assert starts(fake_engine) == [True, False]
            assert it.supervisor.restarts == 1
            assert "measured slower than plain decoding" in it.supervisor.setting.reason
            await it.until(lambda: it.supervisor.watch.idle)
            await talk(endpoint, tokens=100, times=2)
            await settled(it, tuning)
            assert starts(fake_engine) == [True, False]

    asyncio.run(main())


def test_without_a_restart_to_spend_it_says_so_and_goes_on(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(survival=[0.0] * DRAFTED, token_ms=4)
    tuning = tuner_of(max_restarts_per_hour=0)

    async def main() -> None:
        async with supervised(
            charge_of(fake_engine, endpoint), tuning.first(), tuning.reconsider
        ) as it:
            await it.until(Phase.READY)
            await it.until(lambda: it.supervisor.watch.idle)
            await talk(endpoint, tokens=100, times=2)
            await it.until(lambda: tuning.decision)
            await settled(it, tuning)
            assert tuning.decision is not None
            assert tuning.decision.action == "keep"
            assert "measured slower than plain decoding" in tuning.decision.reason
            assert "restarts of this hour are used" in tuning.decision.reason
            assert starts(fake_engine) == [True]

    asyncio.run(main())
