"""A supervisor at work on the fake engine, and what tests ask about processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import psutil

from autospec.daemon.events import Events
from autospec.daemon.gate import Gate
from autospec.daemon.ladder import Step
from autospec.daemon.lifecycle import Pace, Phase
from autospec.daemon.setting import Setting, plain
from autospec.daemon.supervisor import Supervisor
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Charge
from autospec.daemon.timing import Timing
from autospec.engine.find import Engine, read_engine
from autospec.engine.launch import Endpoint, Launch, Speculation

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeEngine

PLAIN = plain("a test")
PATIENCE = 120.0

PACE = Pace(first_pause=0.02, longest_pause=0.2, cool_down=3600, longest_cool_down=3600)
QUICK = Timing(pace=PACE, poll=0.05, glance=0.01)
"""Pauses as in life, but short."""


def drafting(n_max: int, reason: str = "a test") -> Setting:
    return Setting(Speculation(("draft-simple",), n_max), reason, {"type": "auto"})


_known: list[Engine] = []


def engine_of(fake: FakeEngine) -> Engine:
    """Every fake engine is the same program: it is questioned once."""
    if not _known:
        _known.append(read_engine(fake.server, "a test"))
    return replace(_known[0], folder=fake.folder, server=fake.server, stamp=())


def charge_of(
    fake: FakeEngine,
    endpoint: Endpoint,
    *,
    load_seconds: float = PATIENCE,
    slots: int = 1,
    drain: float = 10.0,
    idle_unload: float | None = None,
) -> Charge:
    models = {"model": fake.folder / "m.gguf", "draft": fake.folder / "d.gguf"}
    launch = Launch("m", **models, context=512, slots=slots)
    env = {"PATH": "/usr/bin:/bin"}
    return Charge(
        engine_of(fake),
        launch,
        endpoint,
        env,
        load_seconds,
        context=512,
        drain=drain,
        idle_unload=idle_unload,
    )


def complete(endpoint: Endpoint, **asked: object) -> httpx.Response:
    url = f"http://127.0.0.1:{endpoint.port}/completion"
    return httpx.post(url, json={"prompt": "a", **asked}, timeout=30)


def wrap(fake: FakeEngine, shell: str) -> Path:
    """Make `llama-server` a script that runs `shell` and then becomes the fake, returned here."""
    real = fake.server.rename(fake.folder / "real-server")
    fake.server.write_text(f'#!/bin/sh\n{shell}\nexec {real} "$@"\n')
    fake.server.chmod(0o755)
    return real


class Nursery:
    """One running supervisor; `until` waits for it to come to something."""

    def __init__(self, supervisor: Supervisor, events: Events) -> None:
        self.supervisor = supervisor
        self.events = events
        self.task = asyncio.create_task(supervisor.run())

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.events.kept]

    def said(self, words: str) -> int:
        return sum(words in text for text in self.texts)

    @property
    def child(self) -> psutil.Process:
        assert self.supervisor.server is not None
        return psutil.Process(self.supervisor.server.pid)

    def children(self) -> list[psutil.Process]:
        """Every living child of this process, whoever serves."""
        return [child for child in psutil.Process().children() if not gone(child)]

    async def until(self, reached: Phase | Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (self.supervisor.life.phase is reached or (callable(reached) and reached())):
            assert time.monotonic() < deadline, "\n".join(self.texts)
            if self.task.done():
                self.task.result()
                assert self.supervisor.life.phase is reached or callable(reached), self.texts
            await asyncio.sleep(0.01)

    async def stopped(self) -> None:
        """Ask for the end and see it come."""
        self.supervisor.stop()
        await asyncio.wait_for(self.task, PATIENCE)


@asynccontextmanager
async def supervised(
    charge: Charge,
    setting: Setting = PLAIN,
    reconsider: Callable[..., Setting | None] = lambda _setting, _watch: None,
    on_line: Callable[[str], None] = lambda _line: None,
    *,
    gate: Gate | None = None,
    timing: Timing = QUICK,
    around: Surroundings | None = None,
    on_step: Callable[[Sequence[Step]], None] = lambda _steps: None,
) -> AsyncIterator[Nursery]:
    events = Events()
    supervisor = Supervisor(
        charge,
        setting,
        events,
        reconsider,
        on_line,
        gate=gate,
        timing=timing,
        around=around,
        on_step=on_step,
    )
    nursery = Nursery(supervisor, events)
    try:
        yield nursery
    finally:
        nursery.supervisor.stop(hurry=True)
        await asyncio.wait({nursery.task}, timeout=PATIENCE)
        assert nursery.task.done()


def gone(process: psutil.Process) -> bool:
    """Whether that very process (pid and start time) has ended; nobody may have buried it yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
