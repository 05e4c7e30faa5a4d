"""What an owner sees of a child that serves, and what the child is given."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import httpx
import pytest
from supervised import charge_of, complete, drafting, gone, supervised

from autospec.daemon.child_log import ChildLog
from autospec.daemon.lifecycle import Phase
from autospec.engine import server as servers
from autospec.engine.launch import Endpoint
from autospec.engine.server import Server

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault


@pytest.fixture
def endpoint(free_port: int) -> Endpoint:
    return Endpoint(port=free_port)


def test_speculation_that_is_off_in_silence_is_shown(fake_engine: FakeEngine, endpoint: Endpoint):
    fake_engine.script_server(speculation="off")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), drafting(4)) as it:
            await it.until(lambda: it.supervisor.fault)
            assert it.supervisor.life.phase is Phase.READY
            assert "vocabulary" in (it.supervisor.fault or "")
            assert it.said("serves without speculation") == 1

    asyncio.run(main())


def test_speculation_that_works_is_no_fault(fake_engine: FakeEngine, endpoint: Endpoint):
    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), drafting(4)) as it:
            await it.until(lambda: it.supervisor.watch.idle)
            await asyncio.to_thread(complete, endpoint, n_predict=60)
            await it.until(lambda: it.supervisor.watch.total.drafts)
            assert it.supervisor.fault is None
            assert it.supervisor.watch.total.predicted >= 60

    asyncio.run(main())


@pytest.mark.parametrize(
    ("script", "page"),
    [
        ({"hang": "slots"}, "/slots"),
        ({"hang": "metrics"}, "/metrics"),
        ({"metrics": "missing"}, "/metrics"),
        ({"metrics": "garbage"}, "/metrics"),
    ],
)
def test_a_page_that_cannot_be_read_is_said_once_and_the_child_is_kept(
    fake_engine: FakeEngine,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    script: dict[str, object],
    page: str,
):
    monkeypatch.setattr(servers, "PROBE_SECONDS", 0.5)
    fake_engine.script_server(**script)
    readings = []

    async def main() -> None:
        def count(*_: object) -> None:
            readings.append(1)

        async with supervised(charge_of(fake_engine, endpoint), reconsider=count) as it:
            await it.until(lambda: len(readings) > 3)
            if page == "/metrics":  # The other page is read all the same.
                await it.until(lambda: it.supervisor.watch.idle)
            assert it.said(f"no reading of {page}") == 1
            assert it.supervisor.life.phase is Phase.READY
            it.child.kill()
            await it.until(lambda: it.supervisor.life.kills)

    asyncio.run(main())


@pytest.mark.parametrize("page", ["slots", "metrics"])
def test_a_hanging_page_delays_neither_the_stop_nor_the_notice_of_death(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, page: str
):
    monkeypatch.setattr(servers, "PROBE_SECONDS", 3600)
    fake_engine.script_server(hang=page)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint, drain=0.2)) as it:
            await it.until(Phase.READY)
            await asyncio.sleep(0.2)  # Into the reading that never ends.
            it.child.kill()
            await it.until(lambda: it.said("ready: ") == 2)
            child = it.child
            await it.stopped()
            assert gone(child)

    asyncio.run(main())


def test_a_page_that_recovers_is_said_too(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    answer = Server.slots
    blind = True

    async def slots(self: Server) -> object:
        if blind:
            raise httpx.ConnectError("no")
        return await answer(self)

    monkeypatch.setattr(Server, "slots", slots)

    async def main() -> None:
        nonlocal blind
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(lambda: it.said("no reading of /slots: no"))
            blind = False
            await it.until(lambda: it.said("/slots can be read again"))

    asyncio.run(main())


def test_a_flood_and_an_endless_line_are_kept_within_bounds(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    fake_engine.script_server(log_flood=90_000, log_bytes=16 << 20)
    seen = {"characters": 0, "longest": 0}
    log = ChildLog.open("m")

    def take(line: str) -> None:
        seen["characters"] += len(line)
        seen["longest"] = max(seen["longest"], len(line))
        log(line)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), on_line=take) as it:
            await it.until(lambda: seen["characters"] > 16 << 20)
            await it.until(lambda: it.supervisor.watch.idle)
            assert it.supervisor.server is not None
            assert max(map(len, it.supervisor.server.tail)) <= 4000
            it.child.kill()
            await it.until(lambda: it.said("last words"))
            assert max(map(len, it.texts)) <= 600

    asyncio.run(main())
    log.close()
    assert seen["longest"] <= 1 << 18
    files = list(ChildLog.folder().iterdir())
    assert sorted(file.name for file in files) == ["m.log", "m.log.1"]
    assert all(file.stat().st_size <= 5 << 20 for file in files)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


def test_what_a_child_prints_cannot_write_on_the_terminal(
    fake_engine: FakeEngine, endpoint: Endpoint
):
    log = ["\x1b]0;owned\x07 \x1b[31mred", "error: invalid argument: --\x1b[2Jx"]
    fake_engine.script_server(exit={"when": "start", "code": 1, "log": log})

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.FAILED)
            assert it.said("owned")
            assert all(text.isprintable() for text in it.texts)

    asyncio.run(main())


def test_the_child_gets_its_arguments_and_its_environment_and_no_more(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "16")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), drafting(4)) as it:
            await it.until(Phase.READY)

    asyncio.run(main())
    (start,) = fake_engine.starts()
    assert set(start["env"]) <= {"PATH", "LC_CTYPE", "AUTOSPEC_CHILD"}
    assert "LLAMA_ARG" not in json.dumps(start["argv"])
    assert start["argv"][start["argv"].index("--port") + 1] == str(endpoint.port)
