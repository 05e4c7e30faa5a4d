"""How a child and all that it started end."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
from supervised import PACE, QUICK, charge_of, complete, gone, supervised, wrap

from autospec.daemon.lifecycle import Phase
from autospec.engine.launch import Endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeEngine

pytestmark = pytest.mark.fault

HASTY = replace(QUICK, grace=0.3)
PATIENT = replace(QUICK, grace=3600, pace=replace(PACE, first_pause=3600, longest_pause=3600))
STUBBORN = replace(QUICK, grace=3600)


@pytest.fixture
def endpoint(free_port: int) -> Endpoint:
    return Endpoint(port=free_port)


def test_a_child_that_ignores_sigterm_is_killed_within_the_grace(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(ignore_sigterm=True)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), timing=HASTY) as it:
            await it.until(Phase.READY)
            child = it.child
            await it.stopped()
            assert gone(child)
            assert it.supervisor.life.phase is Phase.STOPPED

    asyncio.run(main())


def test_a_child_that_somebody_else_told_to_end_and_that_lingers_is_replaced(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(lingers=True)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), timing=HASTY) as it:
            await it.until(Phase.READY)
            child = it.child
            child.send_signal(signal.SIGTERM)
            await it.until(lambda: it.said("ready: ") == 2)
            assert gone(child)
            assert it.said("takes no connections any more")
            assert it.supervisor.last_cause is not None
            assert it.supervisor.last_cause.kind == "terminated"

    asyncio.run(main())


def test_a_stop_lets_the_request_under_way_be_answered(fake_engine: FakeEngine, endpoint: Endpoint):
    fake_engine.script_server(token_ms=20)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.READY)
            request = asyncio.create_task(asyncio.to_thread(complete, endpoint, n_predict=40))
            await it.until(lambda: it.supervisor.watch.busy_now == 1)
            await it.stopped()
            assert len((await request).json()["content"].split()) == 40
            assert not it.supervisor.life.deaths

    asyncio.run(main())


def test_a_stop_while_loading_does_not_wait_for_the_load(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(load_seconds=3600)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint, load_seconds=3600)) as it:
            await it.until(lambda: it.supervisor.server)
            child = it.child
            await it.stopped()
            assert gone(child)
            assert not it.said("draining")

    asyncio.run(main())


def test_a_stop_while_backing_off_does_not_wait_for_the_pause(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(exit={"when": "loading", "code": -signal.SIGSEGV})

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), timing=PATIENT) as it:
            await it.until(Phase.BACKING_OFF)
            await it.stopped()
            assert it.supervisor.life.phase is Phase.STOPPED

    asyncio.run(main())


@pytest.mark.parametrize("during", [Phase.DRAINING, Phase.STOPPING])
def test_a_second_stop_hurries(
    fake_engine: FakeEngine,
    endpoint: Endpoint,
    during: Phase,
):
    fake_engine.script_server(ignore_sigterm=True, hang="completion")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint, drain=3600), timing=PATIENT) as it:
            await it.until(Phase.READY)
            child = it.child
            request = None
            if during is Phase.DRAINING:
                request = asyncio.create_task(asyncio.to_thread(complete, endpoint))
                await it.until(lambda: it.supervisor.watch.busy_now == 1)
            it.supervisor.stop()
            await it.until(during)
            await asyncio.sleep(0.1)
            assert not gone(child)
            it.supervisor.stop(hurry=True)
            await asyncio.wait_for(it.task, 120)
            assert gone(child)
            if request is not None:
                with pytest.raises(httpx.HTTPError):
                    await request

    asyncio.run(main())


def test_a_grandchild_that_holds_the_pipes_delays_nothing_and_does_not_survive(
    fake_engine: FakeEngine, endpoint: Endpoint
):

    async def main() -> None:
        charge = charge_of(fake_engine, endpoint)
        wrap(fake_engine, "sleep 3600 &")
        async with supervised(charge, timing=STUBBORN) as it:
            await it.until(Phase.READY)
            child, (grandchild,) = it.child, it.child.children()
            child.kill()
            await it.until(lambda: it.said("ready: ") == 2)
            assert gone(child)
            assert gone(grandchild)
            (second,) = it.child.children()
            await it.stopped()
            assert gone(second)

    asyncio.run(main())


def test_a_grandchild_in_a_session_of_its_own_neither_holds_up_the_stop_nor_survives(
    fake_engine: FakeEngine, endpoint: Endpoint, tmp_path: Path
):

    async def main() -> None:
        charge = charge_of(fake_engine, endpoint)
        wrap(fake_engine, f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 3600' &")
        async with supervised(charge, timing=STUBBORN) as it:
            await it.until(Phase.READY)
            await it.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            stray = psutil.Process(int((tmp_path / "pid").read_text()))
            child = it.child
            await it.stopped()
            assert gone(child)
            assert gone(stray)
            await asyncio.sleep(0.1)  # The loop sees the pipe close.

    asyncio.run(main())


def test_an_owner_that_is_cancelled_again_and_again_ends_its_child_first(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(ignore_sigterm=True)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), timing=HASTY) as it:
            await it.until(Phase.READY)
            child = it.child
            for _ in range(3):
                it.task.cancel()
                await asyncio.sleep(0.1)
            await asyncio.wait({it.task})
            assert it.task.cancelled()
            assert gone(child)

    asyncio.run(main())
