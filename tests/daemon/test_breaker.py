"""A crash loop: an open breaker, one try after the cool-down, and service again."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
from gated import ask
from supervised import PACE, PLAIN, QUICK, charge_of, supervised

from autospec.daemon.gate import Gate, GateRefusal, Way
from autospec.daemon.lifecycle import Phase
from autospec.engine.launch import Endpoint

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

ENDPOINT = Endpoint()
CRASH = {"when": "loading", "code": -signal.SIGSEGV, "log": ["what a pity"]}
LOOPING = replace(
    PACE, first_pause=0.01, longest_pause=0.02, most_deaths=2, cool_down=0.5, steady=0.2
)


def test_a_loop_opens_the_breaker_and_one_try_after_the_cool_down_brings_service_back(
    fake_engine: FakeEngine,
):
    fake_engine.script_server(exit=CRASH)
    gate = Gate("m")
    timing = replace(QUICK, pace=LOOPING)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, ENDPOINT), gate=gate, timing=timing) as it:
            await it.until(lambda: gate.way is Way.SHUT)
            assert it.supervisor.life.phase is Phase.FAILED
            assert not it.supervisor.life.final
            assert it.said("last words: 0.00.000.001 I srv  what a pity") == 3
            assert "one more try in" in it.supervisor.life.reason
            with pytest.raises(GateRefusal, match="SIGSEGV"):
                await gate.enter(30)
            assert len(fake_engine.starts()) == 3
            await it.until(lambda: len(fake_engine.starts()) == 4)
            await it.until(lambda: it.said("died again at the try after the pause"))
            fake_engine.script_server()
            await it.until(Phase.READY)
            assert len(fake_engine.starts()) == 5
            await ask(gate)
            await it.until(lambda: it.supervisor.life.trips == 0)
            assert not it.supervisor.life.deaths

    asyncio.run(main())


def test_a_new_configuration_does_not_wait_for_the_cool_down(fake_engine: FakeEngine):
    fake_engine.script_server(exit=CRASH)
    gate = Gate("m")
    timing = replace(QUICK, pace=replace(LOOPING, cool_down=3600, longest_cool_down=3600))

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT)
        async with supervised(charge, gate=gate, timing=timing) as it:
            await it.until(Phase.FAILED)
            fake_engine.script_server()
            it.supervisor.apply(charge, PLAIN)
            await it.until(Phase.READY)
            await ask(gate)

    asyncio.run(main())


def test_one_that_has_failed_for_good_is_run_again_with_a_new_configuration(
    fake_engine: FakeEngine,
):
    fate = {"flag": "--broken", "code": 1, "log": ["error: invalid argument: --broken"]}
    fake_engine.script_server(fail_from=fate)
    gate = Gate("m")

    async def main() -> None:
        good = charge_of(fake_engine, ENDPOINT)
        bad = replace(good, launch=replace(good.launch, extra=("--broken",)))
        async with supervised(bad, gate=gate) as it:
            await it.until(Phase.FAILED)
            await it.task
            assert it.supervisor.life.final
            it.supervisor.apply(good, PLAIN)
            it.task = asyncio.create_task(it.supervisor.run())
            await it.until(Phase.READY)
            await ask(gate)

    asyncio.run(main())


def test_deaths_and_returns_leak_neither_descriptors_nor_tasks(fake_engine: FakeEngine):
    gate = Gate("m")
    timing = replace(QUICK, pace=replace(PACE, most_deaths=10**6, first_pause=0.01))
    this = psutil.Process()

    async def main() -> None:
        async with supervised(charge_of(fake_engine, ENDPOINT), gate=gate, timing=timing) as it:
            seen = []
            for life in range(1, 13):
                await it.until(lambda life=life: it.said("ready: ") == life)
                await ask(gate)
                seen.append((this.num_fds(), len(asyncio.all_tasks())))
                it.child.kill()
            descriptors, tasks = zip(*seen, strict=True)
            assert max(descriptors[6:]) <= max(descriptors[:6]) + 2, seen
            assert max(tasks[6:]) <= max(tasks[:6]) + 2, seen

    asyncio.run(main())
