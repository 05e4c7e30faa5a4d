"""Faults of a real engine under its owner: what the fake plays, seen where it happens."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
from gated import ask, load, stream
from supervised import QUICK, drafting, gone, supervised

from autospec.daemon.gate import Gate
from autospec.daemon.lifecycle import Phase
from autospec.daemon.liveness import Patience
from autospec.daemon.orphans import take_over
from autospec.daemon.replacement import Room
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Charge
from autospec.engine import server as servers
from autospec.engine.environment import child_environment
from autospec.engine.launch import Endpoint, Launch

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = [pytest.mark.real, pytest.mark.fault]

AMPLE = Surroundings(room=lambda: Room(1 << 40, {}))
CRAMPED = Surroundings(room=lambda: Room(0, {}))
SHORT = replace(QUICK, patience=Patience(still=3.0, stuck=3600.0))

ChargeOf = Callable[..., Charge]


@pytest.fixture
def charge_of(engine: Engine, models: DemoModels) -> ChargeOf:
    """The small model, which loads in about a second."""

    def made(model: Path = models.draft, context: int = 1024, **launch: object) -> Charge:
        extra = ("--threads", "1", *launch.pop("extra", ()))  # type: ignore[misc]
        env, _ = child_environment({"PATH": "/usr/bin:/bin"}, {})
        draft = models.draft_one_dropped
        return Charge(
            engine,
            Launch("m", model, draft=draft, context=context, slots=2, extra=extra, **launch),  # type: ignore[arg-type]
            Endpoint(),
            env,
            load_seconds=300,
            context=context,
        )

    return made


def test_a_child_killed_idle_and_amid_a_stream_is_brought_back(charge_of: ChargeOf):
    gate = Gate("m")

    async def main() -> None:
        async with supervised(charge_of(), gate=gate) as it:
            await it.until(Phase.READY)
            it.child.kill()
            await it.until(lambda: it.said("ready: ") == 2)
            began = asyncio.Event()
            cut = asyncio.create_task(stream(gate, began.set, n_predict=400))
            await began.wait()
            it.child.kill()
            with pytest.raises(httpx.HTTPError):
                await cut
            await it.until(lambda: it.said("ready: ") == 3)
            generation, answer = await ask(gate)
            assert generation == 3
            assert answer.json()["timings"]["predicted_n"] == 8
            assert it.supervisor.last_cause is not None
            assert it.supervisor.last_cause.kind == "killed"

    asyncio.run(main())


def test_a_child_that_somebody_else_tells_to_end_amid_a_stream_is_replaced(charge_of: ChargeOf):
    """It stops listening at once, and waits for its stream, which gets no token any more."""
    gate = Gate("m")

    async def main() -> None:
        async with supervised(charge_of(), gate=gate) as it:
            await it.until(Phase.READY)
            began = asyncio.Event()
            cut = asyncio.create_task(stream(gate, began.set, n_predict=800))
            await began.wait()
            child = it.child
            child.send_signal(signal.SIGTERM)
            await asyncio.wait({cut})
            await it.until(lambda: it.said("ready: ") == 2)
            assert gone(child)
            assert it.supervisor.last_cause is not None
            assert it.supervisor.last_cause.kind in ("clean", "terminated")
            generation, answer = await ask(gate)
            assert (generation, answer.json()["timings"]["predicted_n"]) == (2, 8)

    asyncio.run(main())


def test_a_frozen_child_is_replaced_and_a_long_prompt_is_let_work(
    charge_of: ChargeOf, models: DemoModels, monkeypatch: pytest.MonkeyPatch
):
    """The prompt takes many times as long as a child may be still, in one batch."""
    monkeypatch.setattr(servers, "PROBE_SECONDS", 0.3)
    gate = Gate("m")
    charge = charge_of(models.target, extra=("-b", "1024", "-ub", "1024"))

    async def main() -> None:
        async with supervised(charge, gate=gate, timing=SHORT) as it:
            await it.until(Phase.READY)
            child = it.child
            began = time.monotonic()
            _, answer = await ask(gate, prompt="one two three four " * 100, n_predict=2)
            assert answer.json()["timings"]["prompt_n"] > 300
            assert time.monotonic() - began > SHORT.patience.still
            assert not it.supervisor.life.deaths
            assert it.child == child
            child.send_signal(signal.SIGSTOP)
            await it.until(lambda: it.said("ready: ") == 2)
            assert gone(child)
            assert it.said("llama-server hangs: nothing has moved in it")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"extra": ("--no-such-flag",)}, "bad_flag"),
        ({"model": Path("/nonexistent/model.gguf")}, "missing_model"),
        ({"model": Path(__file__)}, "bad_model"),
    ],
)
def test_what_ends_a_start_for_good_is_named_and_not_tried_again(
    charge_of: ChargeOf, changes: dict[str, object], kind: str
):
    async def main() -> None:
        async with supervised(charge_of(**changes), gate=Gate("m")) as it:
            await it.until(Phase.FAILED)
            await it.task
            assert it.supervisor.life.final
            assert it.supervisor.last_cause is not None
            assert it.supervisor.last_cause.kind == kind
            assert it.said("starting: ") == 1

    asyncio.run(main())


@pytest.mark.parametrize("around", [AMPLE, CRAMPED], ids=["beside", "in turn"])
def test_a_planned_restart_under_load_loses_nothing(charge_of: ChargeOf, around: Surroundings):
    gate = Gate("m")

    async def main() -> None:
        async with supervised(charge_of(), gate=gate, around=around) as it:
            await it.until(Phase.READY)
            async with load(gate, n_predict=6) as seen:
                await it.until(lambda: len(seen.answered) > 3)
                it.supervisor.apply(it.supervisor.charge, drafting(3, "better"))
                await it.until(lambda: seen.answered[-1] == 2)
            assert not seen.failed
            assert it.supervisor.setting.speculation.on
            await it.until(lambda: len(it.children()) == 1)
            _, answer = await ask(gate, n_predict=24)
            assert answer.json()["timings"]["draft_n"] > 0

    asyncio.run(main())


def test_a_restart_in_turn_keeps_what_the_slots_have_read(charge_of: ChargeOf):
    gate = Gate("m")
    prompt = "one two three four five " * 40

    async def main() -> None:
        async with supervised(charge_of(), gate=gate, around=CRAMPED) as it:
            await it.until(Phase.READY)
            _, first = await ask(gate, prompt=prompt, temperature=0)
            await it.until(lambda: it.supervisor.watch.idle)
            it.supervisor.request_restart("a test")
            await it.until(lambda: it.supervisor.generation == 2)
            _, again = await ask(gate, prompt=prompt, temperature=0)
            assert again.json()["content"] == first.json()["content"]
            assert again.json()["timings"]["cache_n"] > 150
            assert it.said("need not be read again") == 1

    asyncio.run(main())


def test_a_stop_ends_a_request_that_outlasts_the_drain(charge_of: ChargeOf):
    gate = Gate("m")

    async def main() -> None:
        charge = replace(charge_of(context=8192), drain=0.5)
        async with supervised(charge, gate=gate) as it:
            await it.until(Phase.READY)
            began = asyncio.Event()
            long = asyncio.create_task(stream(gate, began.set, n_predict=3000, ignore_eos=True))
            await began.wait()
            child = it.child
            await it.stopped()
            assert gone(child)
            assert it.said("draining: ")
            await asyncio.wait({long})

    asyncio.run(main())


DAEMON = """
import asyncio, sys
from pathlib import Path
from autospec.daemon.orphans import take_over
from autospec.engine.launch import Endpoint
from autospec.engine.server import Server

async def main():
    folder = Path({folder!r})
    roster, said = take_over(folder)
    endpoint = Endpoint(socket=folder / "m-1.sock")
    server = await Server.start({argv!r}, {{"PATH": "/usr/bin:/bin"}}, endpoint)
    roster.add(server.program.identity, endpoint.socket)
    await server.ready(300)
    print(server.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.parametrize("wrapped", [False, True])
def test_nothing_of_a_killed_daemon_is_there_when_the_next_one_starts(
    engine: Engine, models: DemoModels, isolated: Path, tmp_path: Path, wrapped: bool
):
    """Started directly, the kernel ends the engine; behind a wrapper, the next daemon does."""
    program = engine.server
    if wrapped:
        program = tmp_path / "wrapper"
        program.write_text(f'#!/bin/sh\n{engine.server} "$@" &\nwait\n')
        program.chmod(0o755)
    folder = isolated / "run"
    folder.mkdir(mode=0o700)
    argv = [str(program), "--model", str(models.draft), "--host", str(folder / "m-1.sock")]
    argv += ["--port", "1", "--ctx-size", "256", "--threads", "1"]
    code = textwrap.dedent(DAEMON).format(folder=str(folder), argv=argv)
    daemon = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    started = psutil.Process(int(daemon.stdout.readline()))
    tree = [started, *started.children()]
    assert len(tree) == 1 + wrapped
    daemon.kill()
    daemon.communicate()
    while not gone(started):
        time.sleep(0.01)
    assert not gone(tree[-1]) or not wrapped
    _, said = take_over(folder)
    assert all(map(gone, tree))
    assert not (folder / "m-1.sock").exists()
    assert len(said) == int(wrapped)
