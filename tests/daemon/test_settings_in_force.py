"""Another setting for a child without a gate before it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from supervised import PACE, PLAIN, QUICK, charge_of, drafting, supervised

from autospec.daemon.lifecycle import Phase
from autospec.engine.launch import Endpoint

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

SLOW = replace(QUICK, pace=replace(PACE, first_pause=0.2))


@pytest.fixture
def endpoint(free_port: int) -> Endpoint:
    return Endpoint(port=free_port)


def n_max_of(start: dict[str, list[str]]) -> int | None:
    argv = start["argv"]
    return int(argv[argv.index("--spec-draft-n-max") + 1]) if "draft-simple" in argv else None


def test_a_better_setting_is_put_in_force_by_one_restart(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    better = drafting(6, "better")

    async def main() -> None:
        async with supervised(
            charge_of(fake_engine, endpoint),
            drafting(2),
            lambda setting, _watch: None if setting is better else better,
        ) as it:
            await it.until(lambda: it.said("ready: ") == 2)
            await it.until(lambda: it.supervisor.watch.idle)
            assert [n_max_of(start) for start in fake_engine.starts()] == [2, 6]
            assert it.supervisor.restarts == 1
            assert not it.supervisor.life.deaths

    asyncio.run(main())


def test_a_setting_that_does_not_come_up_gives_way_to_the_one_before(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    greedy = drafting(6, "looks better")
    out_of_memory = "ggml_backend_cuda_buffer_type_alloc_buffer: out of memory"
    asked = []

    async def main() -> None:
        def reconsider(setting: object, _watch: object) -> object:
            asked.append(setting)
            fate = {"when": "loading", "code": 1, "log": [out_of_memory]}
            if len(asked) == 1:
                fake_engine.script_server(exit=fate)
            return greedy

        async with supervised(
            charge_of(fake_engine, endpoint), PLAIN, reconsider, timing=SLOW
        ) as it:
            await it.until(lambda: it.said("back to the one before"))
            fake_engine.script_server()
            await it.until(lambda: len(asked) > 3)
            assert [n_max_of(start) for start in fake_engine.starts()] == [None, 6, None]
            assert it.supervisor.setting is PLAIN
            assert it.said("out of memory")

    asyncio.run(main())


def test_a_prediction_that_fails_ends_no_server(fake_engine: FakeEngine, endpoint: Endpoint):
    asked = []

    async def main() -> None:
        def reconsider(*_: object) -> None:
            asked.append(1)
            raise ZeroDivisionError("a mistake")

        async with supervised(charge_of(fake_engine, endpoint), reconsider=reconsider) as it:
            await it.until(lambda: len(asked) > 3)
            assert it.supervisor.life.phase is Phase.READY
            assert it.said("tuning failed") == 1

    asyncio.run(main())
