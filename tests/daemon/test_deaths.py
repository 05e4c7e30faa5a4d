"""A child that dies, does not come up, or must not be tried again."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from supervised import PACE, charge_of, drafting, gone, supervised

from autospec.daemon.lifecycle import Phase
from autospec.engine.launch import Endpoint
from autospec.engine.server import Server

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeEngine

pytestmark = pytest.mark.fault


@pytest.fixture
def endpoint(free_port: int) -> Endpoint:
    return Endpoint(port=free_port)


def test_a_child_that_crashed_is_brought_back(fake_engine: FakeEngine, endpoint: Endpoint):
    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.READY)
            first = it.child
            first.send_signal(signal.SIGSEGV)
            await it.until(lambda: it.said("ready: ") == 2)
            assert it.child.pid != first.pid
            assert gone(first)
            assert len(it.supervisor.life.deaths) == 1
            assert it.said("backing off: the engine crashed (SIGSEGV)")

    asyncio.run(main())


def test_a_crash_loop_ends_with_its_reason_and_the_childs_last_lines(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    log = ["CUDA error: an illegal memory access was encountered", "  current device: 0"]
    fake_engine.script_server(exit={"when": "loading", "code": -signal.SIGABRT, "log": log})

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.FAILED)
            assert len(fake_engine.starts()) == PACE.most_deaths + 1
            assert f"died {PACE.most_deaths + 1} times" in it.supervisor.life.reason
            assert "illegal memory access" in it.supervisor.life.reason
            assert it.said("last words: ") >= PACE.most_deaths + 1
            assert it.events.kept[-1].level == "error"
            pauses = [float(s) for s in re.findall(r"again in ([\d.]+) s", " ".join(it.texts))]
            assert len(pauses) == PACE.most_deaths
            assert all(b >= a for a, b in pairwise(pauses))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (["error: invalid argument: --nope"], "--nope"),
        (
            [
                "failed to open GGUF file 'x.gguf' (No such file or directory)",
                "failed to load model",
            ],
            "model file is missing",
        ),
    ],
)
def test_what_would_only_repeat_itself_is_not_tried_again(
    fake_engine: FakeEngine, endpoint: Endpoint, log: list[str], reason: str
):
    fake_engine.script_server(exit={"when": "start", "code": 1, "log": log})

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.FAILED)
            assert reason in it.supervisor.life.reason
            assert len(fake_engine.starts()) == 1

    asyncio.run(main())


def test_an_engine_that_cannot_speculate_as_asked_is_a_failure_not_a_crash(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    setting = drafting(4)
    setting = type(setting)(
        type(setting.speculation)(("draft-new",), 4), setting.reason, setting.sources
    )

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), setting) as it:
            await it.until(Phase.FAILED)
            assert "draft-new" in it.supervisor.life.reason
            assert not fake_engine.starts()

    asyncio.run(main())


def test_a_program_that_is_being_replaced_is_tried_again(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    away = fake_engine.folder / "away"

    async def main() -> None:
        charge = charge_of(fake_engine, endpoint)
        fake_engine.server.rename(away)
        async with supervised(charge) as it:
            await it.until(lambda: it.said("not started: "))
            away.rename(fake_engine.server)
            await it.until(Phase.READY)

    asyncio.run(main())


def test_a_fault_of_ours_is_retried_and_then_final(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    async def broken(*_: object) -> Server:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Server, "start", broken)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.FAILED)
            assert "a fault of autospec: RuntimeError('a mistake')" in it.supervisor.life.reason

    asyncio.run(main())


def test_a_slow_load_within_its_deadline_is_waited_for(fake_engine: FakeEngine, endpoint: Endpoint):
    fake_engine.script_server(load_seconds=0.5)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.READY)
            assert len(fake_engine.starts()) == 1
            assert not it.supervisor.life.deaths

    asyncio.run(main())


@pytest.mark.parametrize("script", [{"load_seconds": 60}, {"hang": "health"}])
def test_a_load_over_its_deadline_is_ended_and_tried_again(
    fake_engine: FakeEngine, endpoint: Endpoint, script: dict[str, object]
):
    fake_engine.script_server(**script)

    async def main() -> None:
        charge = charge_of(fake_engine, endpoint, load_seconds=0.5)
        async with supervised(charge) as it:
            await it.until(lambda: it.supervisor.server)
            first = it.child
            await it.until(lambda: it.supervisor.life.deaths)
            assert gone(first)
            assert it.said("not ready after")
            assert it.said("start_timeout")

    asyncio.run(main())


def test_somebody_else_on_the_address_is_not_taken_for_the_child(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    async def main() -> None:
        with socket.create_server(("127.0.0.1", endpoint.port)):
            async with supervised(charge_of(fake_engine, endpoint)) as it:
                await it.until(lambda: it.said("another program already listens"))
                assert not fake_engine.starts()
                await it.stopped()
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.READY)

    asyncio.run(main())


def test_the_socket_that_a_killed_child_left_is_no_obstacle(
    fake_engine: FakeEngine, isolated: Path
):
    endpoint = Endpoint(socket=isolated / "child.sock")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.READY)
            it.child.kill()
            await it.until(lambda: it.said("ready: ") == 2)
            assert len(it.supervisor.life.kills) == 1

    asyncio.run(main())


def test_a_file_in_the_place_of_the_socket_is_left_alone(fake_engine: FakeEngine, isolated: Path):
    endpoint = Endpoint(socket=isolated / "precious.sock")
    assert endpoint.socket is not None
    endpoint.socket.write_text("no socket")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(lambda: it.said("backing off"))

    asyncio.run(main())
    assert endpoint.socket.read_text() == "no socket"


def test_a_key_file_that_vanished_is_a_reason_not_an_orphan(
    fake_engine: FakeEngine, free_port: int, isolated: Path
):
    endpoint = Endpoint(port=free_port, api_key_file=isolated / "keys")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(lambda: it.said("cannot read the API key file"))
            assert not fake_engine.starts()

    asyncio.run(main())
