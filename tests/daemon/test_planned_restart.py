"""A planned restart under traffic that never pauses: no request is cut, whichever way it goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from gated import ask, load, stream
from supervised import PLAIN, QUICK, charge_of, drafting, gone, supervised

from autospec.daemon.gate import Gate
from autospec.daemon.lifecycle import Phase
from autospec.daemon.replacement import Room
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Charge
from autospec.engine.launch import Endpoint

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

AMPLE = Surroundings(room=lambda: Room(1 << 40, {}))
CRAMPED = Surroundings(room=lambda: Room(0, {}))
ENDPOINT = Endpoint()
OUT_OF_MEMORY = "ggml_backend_cuda_buffer_type_alloc_buffer: out of memory"
LOAD = {"n_predict": 20, "clients": 2}


def better_once(better: object) -> Any:
    """What a tuner does that has found one better setting."""
    asked: list[object] = []

    def reconsider(_setting: object, _watch: object) -> object:
        asked.append(None)
        return better if len(asked) == 1 else None

    return reconsider


@pytest.mark.parametrize("around", [AMPLE, CRAMPED], ids=["beside", "in turn"])
def test_a_setting_is_put_in_force_under_endless_traffic_and_nothing_is_lost(
    fake_engine: FakeEngine, around: Surroundings
):
    fake_engine.script_server(token_ms=2, load_seconds=0.2)
    gate, better = Gate("m"), drafting(6, "better")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, slots=2)
        async with supervised(charge, gate=gate, around=around) as it:
            await it.until(Phase.READY)
            async with load(gate, **LOAD) as seen:
                await it.until(lambda: len(seen.answered) > 5)
                it.supervisor.apply(it.supervisor.charge, better, "better")
                await it.until(lambda: it.supervisor.setting is better and seen.answered[-1] == 2)
                await it.until(lambda: it.said("ready: ") == 2)
                answered = len(seen.answered)
                await it.until(lambda: len(seen.answered) > answered + 5)
            assert not seen.failed
            assert set(seen.answered) == {1, 2}
            assert seen.answered == sorted(seen.answered) or around is AMPLE
            assert it.supervisor.restarts == 1
            assert not it.supervisor.life.deaths
            await it.until(lambda: len(it.children()) == 1)
            beside = it.said("starting the new child beside")
            assert beside == (1 if around is AMPLE else 0)
            assert it.said("MiB, and 0 are free") == (0 if around is AMPLE else 1)

    asyncio.run(main())


def test_the_tuners_choice_needs_no_idle_moment(fake_engine: FakeEngine):
    fake_engine.script_server(token_ms=2)
    gate, better = Gate("m"), drafting(6, "better")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, slots=2)
        async with supervised(charge, PLAIN, better_once(better), gate=gate, around=CRAMPED) as it:
            async with load(gate, **LOAD) as seen:
                await it.until(lambda: it.supervisor.setting is better)
                await it.until(lambda: seen.answered and seen.answered[-1] == 2)
            assert not seen.failed

    asyncio.run(main())


def test_a_long_stream_goes_on_with_the_old_child_while_the_new_one_serves(
    fake_engine: FakeEngine,
):
    fake_engine.script_server(token_ms=5)
    gate = Gate("m")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, slots=2)
        async with supervised(charge, gate=gate, around=AMPLE) as it:
            await it.until(Phase.READY)
            old = it.child
            pieces: list[None] = []
            long = asyncio.create_task(stream(gate, lambda: pieces.append(None), n_predict=10**6))
            await it.until(lambda: pieces)
            it.supervisor.request_restart("a test")
            await it.until(lambda: it.supervisor.generation == 2)
            generation, _ = await ask(gate)
            assert generation == 2
            so_far = len(pieces)
            await it.until(lambda: len(pieces) > so_far + 20)
            assert not gone(old)
            assert it.said("1 requests end on the child before") == 1
            long.cancel()
            await it.until(lambda: gone(old))
            generation, _ = await ask(gate)
            assert generation == 2

    asyncio.run(main())


def test_without_room_a_long_stream_puts_the_restart_off_and_is_not_cut(fake_engine: FakeEngine):
    fake_engine.script_server(token_ms=5)
    gate = Gate("m")
    timing = replace(QUICK, yielding=0.2, again=0.3)

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, slots=2)
        async with supervised(charge, gate=gate, around=CRAMPED, timing=timing) as it:
            await it.until(Phase.READY)
            began = asyncio.Event()
            long = asyncio.create_task(stream(gate, began.set, n_predict=250))
            await began.wait()
            it.supervisor.request_restart("a test")
            await it.until(lambda: it.said("requests still run after"))
            generation, _ = await ask(gate)
            assert generation == 1
            assert it.supervisor.planned == "a test"
            assert (await long).count("data: ") >= 250
            await it.until(lambda: it.supervisor.generation == 2)
            assert it.supervisor.planned is None

    asyncio.run(main())


def test_a_new_child_that_does_not_come_up_leaves_the_old_one_serving(fake_engine: FakeEngine):
    fate = {"flag": "draft-simple", "code": 1, "log": [OUT_OF_MEMORY]}
    fake_engine.script_server(fail_from=fate)
    gate = Gate("m")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, slots=2)
        async with supervised(charge, PLAIN, lambda *_: drafting(6), gate=gate, around=AMPLE) as it:
            async with load(gate, **LOAD) as seen:
                await it.until(lambda: it.said("back to the one before"))
                answered = len(seen.answered)
                await it.until(lambda: len(seen.answered) > answered + 3)
            assert not seen.failed
            assert set(seen.answered) == {1}
            assert it.supervisor.setting is PLAIN
            assert len(fake_engine.starts()) == 2, "it is not tried again"
            assert it.supervisor.life.phase is Phase.READY

    asyncio.run(main())


def broken(charge: Charge) -> Charge:
    return replace(charge, launch=replace(charge.launch, extra=("--broken",)))


@pytest.mark.parametrize("around", [AMPLE, CRAMPED], ids=["beside", "in turn"])
def test_a_configuration_that_does_not_come_up_gives_way_to_the_one_before(
    fake_engine: FakeEngine, around: Surroundings
):
    fate = {"flag": "--broken", "code": 1, "log": ["error: invalid argument: --broken"]}
    fake_engine.script_server(fail_from=fate)
    gate = Gate("m")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT)
        async with supervised(charge, gate=gate, around=around) as it:
            await it.until(Phase.READY)
            it.supervisor.apply(broken(charge), PLAIN)
            await it.until(lambda: it.said("the new configuration did not come up"))
            generation, _ = await ask(gate)
            assert generation == (1 if around is AMPLE else 2)
            assert it.supervisor.charge is charge
            assert it.said("--broken")

    asyncio.run(main())


def test_the_old_child_dies_while_the_new_one_loads_and_requests_wait_for_it(
    fake_engine: FakeEngine,
):
    fake_engine.script_server(load_seconds=1.0)
    gate = Gate("m")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, ENDPOINT), gate=gate, around=AMPLE) as it:
            await it.until(Phase.READY)
            old = it.child
            it.supervisor.request_restart("a test")
            await it.until(lambda: len(fake_engine.starts()) == 2)
            old.kill()
            await it.until(lambda: it.said("takes over"))
            generation, _ = await ask(gate)
            assert generation == 2
            assert len(fake_engine.starts()) == 2

    asyncio.run(main())


@pytest.mark.parametrize("hurry", [False, True])
def test_a_stop_amid_a_replacement_leaves_nothing(fake_engine: FakeEngine, hurry: bool):
    async def main() -> None:
        gate = Gate("m")
        async with supervised(charge_of(fake_engine, ENDPOINT), gate=gate, around=AMPLE) as it:
            await it.until(Phase.READY)
            fake_engine.script_server(load_seconds=3600)
            it.supervisor.request_restart("a test")
            await it.until(lambda: len(fake_engine.starts()) == 2)
            children = it.children()
            it.supervisor.stop(hurry=hurry)
            await asyncio.wait_for(it.task, 120)
            assert len(children) == 2
            assert all(map(gone, children))

    asyncio.run(main())


def test_a_stop_waits_for_requests_only_until_its_deadline(fake_engine: FakeEngine):
    fake_engine.script_server(hang="completion")
    gate = Gate("m")

    async def main() -> None:
        charge = charge_of(fake_engine, ENDPOINT, drain=0.3)
        async with supervised(charge, gate=gate) as it:
            await it.until(Phase.READY)
            child = it.child
            request = asyncio.create_task(ask(gate))
            await it.until(lambda: gate.in_flight() == 1)
            await it.stopped()
            assert gone(child)
            with pytest.raises(httpx.HTTPError):
                await request

    asyncio.run(main())
