"""One owner and its child, through every fault that the fake engine can play."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from itertools import pairwise
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
from supervised import PLAIN, charge_of, drafting, gone, supervised, wrap

from autospec.daemon import lifecycle, supervisor
from autospec.daemon.child_log import ChildLog
from autospec.daemon.lifecycle import MOST_DEATHS, Phase
from autospec.engine import server as servers
from autospec.engine.launch import Endpoint
from autospec.engine.server import Server

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeEngine

pytestmark = pytest.mark.fault


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses as in life, but short."""
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(lifecycle, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(lifecycle, "LONGEST_PAUSE", 0.2)


@pytest.fixture
def endpoint(free_port: int) -> Endpoint:
    return Endpoint(port=free_port)


def complete(endpoint: Endpoint, **asked: object) -> httpx.Response:
    url = f"http://127.0.0.1:{endpoint.port}/completion"
    return httpx.post(url, json={"prompt": "a", **asked}, timeout=30)


# --- death and return ---------------------------------------------------------------------


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
            await it.task
            assert len(fake_engine.starts()) == MOST_DEATHS + 1
            assert f"died {MOST_DEATHS + 1} times" in it.supervisor.life.reason
            assert "illegal memory access" in it.supervisor.life.reason
            assert it.said("last words: ") >= MOST_DEATHS + 1
            assert it.events.kept[-1].level == "error"
            pauses = [float(s) for s in re.findall(r"again in ([\d.]+) s", " ".join(it.texts))]
            assert len(pauses) == MOST_DEATHS
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
            await it.task
            assert "a fault of autospec: RuntimeError('a mistake')" in it.supervisor.life.reason

    asyncio.run(main())


# --- loading ------------------------------------------------------------------------------


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
            assert len(it.supervisor.life.deaths) == 1

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


# --- while it serves ----------------------------------------------------------------------


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
            await it.until(lambda: it.supervisor.life.deaths)

    asyncio.run(main())


@pytest.mark.parametrize("page", ["slots", "metrics"])
def test_a_hanging_page_delays_neither_the_stop_nor_the_notice_of_death(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, page: str
):
    monkeypatch.setattr(servers, "PROBE_SECONDS", 3600)
    monkeypatch.setattr(supervisor, "DRAIN_SECONDS", 0.2)
    fake_engine.script_server(hang=page)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
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


# --- the end ------------------------------------------------------------------------------


def test_a_child_that_ignores_sigterm_is_killed_within_the_grace(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "STOP_GRACE", 0.3)
    fake_engine.script_server(ignore_sigterm=True)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.READY)
            child = it.child
            await it.stopped()
            assert gone(child)
            assert it.supervisor.life.phase is Phase.STOPPED

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
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lifecycle, "FIRST_PAUSE", 3600)
    monkeypatch.setattr(lifecycle, "LONGEST_PAUSE", 3600)
    fake_engine.script_server(exit={"when": "loading", "code": -signal.SIGSEGV})

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.BACKING_OFF)
            await it.stopped()
            assert it.supervisor.life.phase is Phase.STOPPED

    asyncio.run(main())


@pytest.mark.parametrize("during", [Phase.DRAINING, Phase.STOPPING])
def test_a_second_stop_hurries(
    fake_engine: FakeEngine,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    during: Phase,
):
    monkeypatch.setattr(supervisor, "STOP_GRACE", 3600)
    monkeypatch.setattr(supervisor, "DRAIN_SECONDS", 3600)
    fake_engine.script_server(ignore_sigterm=True, hang="completion")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
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
            await asyncio.wait_for(it.task, 30)
            assert gone(child)
            if request is not None:
                with pytest.raises(httpx.HTTPError):
                    await request

    asyncio.run(main())


def test_a_grandchild_that_holds_the_pipes_delays_nothing_and_does_not_survive(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "STOP_GRACE", 3600)

    async def main() -> None:
        charge = charge_of(fake_engine, endpoint)
        wrap(fake_engine, "sleep 3600 &")
        async with supervised(charge) as it:
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


def test_a_grandchild_in_a_session_of_its_own_cannot_hold_up_the_stop(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(supervisor, "STOP_GRACE", 3600)

    async def main() -> None:
        charge = charge_of(fake_engine, endpoint)
        wrap(fake_engine, f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 3600' &")
        async with supervised(charge) as it:
            await it.until(Phase.READY)
            await it.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            stray = psutil.Process(int((tmp_path / "pid").read_text()))
            try:
                child = it.child
                await it.stopped()
                assert gone(child)
                assert not gone(stray)
            finally:
                stray.kill()
                await asyncio.sleep(0.1)  # The loop sees the pipe close.

    asyncio.run(main())


def test_an_owner_that_is_cancelled_again_and_again_ends_its_child_first(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "STOP_GRACE", 0.5)
    fake_engine.script_server(ignore_sigterm=True)

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint)) as it:
            await it.until(Phase.READY)
            child = it.child
            for _ in range(3):
                it.task.cancel()
                await asyncio.sleep(0.1)
            await asyncio.wait({it.task})
            assert it.task.cancelled()
            assert gone(child)

    asyncio.run(main())


# --- another setting ----------------------------------------------------------------------


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
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lifecycle, "FIRST_PAUSE", 0.2)
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

        async with supervised(charge_of(fake_engine, endpoint), PLAIN, reconsider) as it:
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


# --- what a child is given ----------------------------------------------------------------


def test_the_child_gets_its_arguments_and_its_environment_and_no_more(
    fake_engine: FakeEngine, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "16")

    async def main() -> None:
        async with supervised(charge_of(fake_engine, endpoint), drafting(4)) as it:
            await it.until(Phase.READY)

    asyncio.run(main())
    (start,) = fake_engine.starts()
    assert set(start["env"]) <= {"PATH", "LC_CTYPE"}
    assert "LLAMA_ARG" not in json.dumps(start["argv"])
    assert start["argv"][start["argv"].index("--port") + 1] == str(endpoint.port)
