"""A model that nobody asks for is unloaded, and loaded again by the first request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from gated import ask, stream
from supervised import PLAIN, charge_of, drafting, gone, supervised

from autospec.daemon.gate import Gate, Way
from autospec.daemon.lifecycle import Phase
from autospec.engine.launch import Endpoint

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

ENDPOINT = Endpoint()


def test_an_idle_model_is_unloaded_and_a_request_wakes_it(fake_engine: FakeEngine):
    gate = Gate("m")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, idle_unload=0.3)
        async with supervised(charge, gate=gate) as it:
            await it.until(Phase.READY)
            child = it.child
            await ask(gate)
            await it.until(Phase.ASLEEP)
            assert gone(child)
            assert gate.way is Way.ASLEEP
            assert it.supervisor.server is None
            answers = await asyncio.gather(*(ask(gate) for _ in range(5)))
            assert {generation for generation, _ in answers} == {2}
            assert len(fake_engine.starts()) == 2
            assert not it.supervisor.life.deaths

    asyncio.run(main())


def test_a_model_at_work_is_not_idle(fake_engine: FakeEngine):
    gate = Gate("m")
    fake_engine.script_server(token_ms=10)

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, idle_unload=0.2)
        async with supervised(charge, gate=gate) as it:
            await it.until(Phase.READY)
            assert (await stream(gate, n_predict=100)).count("data: ") >= 100
            assert len(fake_engine.starts()) == 1
            await it.until(Phase.ASLEEP)

    asyncio.run(main())


def test_a_sleeping_model_stops_at_once_and_takes_a_new_configuration(fake_engine: FakeEngine):
    gate, better = Gate("m"), drafting(5)

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, idle_unload=0.2)
        async with supervised(charge, PLAIN, gate=gate) as it:
            await it.until(Phase.ASLEEP)
            it.supervisor.apply(charge, better)
            await it.until(lambda: it.supervisor.setting is better)
            await it.until(Phase.ASLEEP)
            await it.stopped()
            assert gate.way is Way.SHUT

    asyncio.run(main())
