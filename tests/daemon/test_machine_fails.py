"""The machine fails, not the child: the clock jumps, descriptors or memory run out."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gated import ask
from supervised import QUICK, charge_of, supervised

from autospec.daemon.gate import Gate
from autospec.daemon.lifecycle import Phase
from autospec.daemon.liveness import Patience
from autospec.daemon.terms import Charge
from autospec.engine.environment import child_environment
from autospec.engine.launch import Endpoint, Launch

if TYPE_CHECKING:
    from conftest import FakeEngine

    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = pytest.mark.fault

DAY = 86_400.0
WATCHFUL = replace(QUICK, patience=Patience(still=30.0, stuck=60.0))


@pytest.mark.parametrize("jump", [-3650 * DAY, -1.0, DAY, 3650 * DAY])
def test_a_jump_of_the_clock_changes_nothing(
    fake_engine: FakeEngine, free_port: int, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    honest = time.time

    async def main() -> None:
        charge = charge_of(fake_engine, Endpoint(port=free_port))
        async with supervised(charge, gate=Gate("m"), timing=WATCHFUL) as it:
            await it.until(Phase.READY)
            child = it.child
            readings = it.supervisor.watch._idle_readings
            monkeypatch.setattr(time, "time", lambda: honest() + jump)
            await it.until(lambda: it.supervisor.watch._idle_readings > readings + 5)
            assert (it.child, it.supervisor.life.deaths) == (child, ())
            child.kill()
            await it.until(lambda: it.said("ready: ") == 2)
            assert it.supervisor.life.trips == 0

    asyncio.run(main())


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_for_another_child_it_is_tried_until_there_are_some(
    fake_engine: FakeEngine, free_port: int
) -> None:
    async def main() -> None:
        charge = charge_of(fake_engine, Endpoint(port=free_port))
        patient = replace(QUICK, pace=replace(QUICK.pace, cool_down=0.1, longest_cool_down=0.2))
        async with supervised(charge, gate=Gate("m"), timing=patient) as it:
            await it.until(Phase.READY)
            pid = it.child.pid
            with no_more_descriptors():
                os.kill(pid, signal.SIGKILL)
                await it.until(lambda: it.said("Too many open files"))
            await it.until(lambda: it.said("ready: ") == 2)
            assert not it.supervisor.life.final

    asyncio.run(main())


@pytest.mark.real
def test_where_memory_does_not_suffice_the_engine_serves_with_less(
    engine: Engine, models: DemoModels, tmp_path: Path
) -> None:
    """Four gigabytes of address space hold the model, and not the cache of a long context."""
    server = tmp_path / "llama-server"
    server.write_text(f'#!/bin/sh\nulimit -v 4000000\nexec {engine.server} "$@"\n')
    server.chmod(0o755)
    env, _ = child_environment({"PATH": "/usr/bin:/bin"}, {})
    context = 1 << 18
    launch = Launch("m", models.draft, context=context, extra=("--threads", "1"))
    charge = Charge(
        replace(engine, server=server, stamp=()),
        launch,
        Endpoint(),
        env,
        load_seconds=300,
        context=context,
        on_gpu=False,
    )

    async def main() -> None:
        gate = Gate("m")
        async with supervised(charge, gate=gate) as it:
            await it.until(lambda: it.said("ready: ") or it.supervisor.life.final)
            assert it.supervisor.degraded, it.texts
            assert set(it.supervisor.degraded) == {"half the context"}
            _, answer = await ask(gate)
            assert answer.json()["timings"]["predicted_n"] == 8

    asyncio.run(main())
