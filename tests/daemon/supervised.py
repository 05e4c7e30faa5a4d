"""A supervisor at work on the fake engine, and what tests ask about processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil

from autospec.daemon.events import Events
from autospec.daemon.lifecycle import Phase
from autospec.daemon.setting import Setting, plain
from autospec.daemon.supervisor import Charge, Supervisor
from autospec.engine.find import Engine, read_engine
from autospec.engine.launch import Endpoint, Launch, Speculation

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeEngine

PLAIN = plain("a test")
PATIENCE = 30.0


def drafting(n_max: int, reason: str = "a test") -> Setting:
    return Setting(Speculation(("draft-simple",), n_max), reason, {"type": "auto"})


_known: list[Engine] = []


def engine_of(fake: FakeEngine) -> Engine:
    """Every fake engine is the same program: it is questioned once."""
    if not _known:
        _known.append(read_engine(fake.server, "a test"))
    return replace(_known[0], folder=fake.folder, server=fake.server)


def charge_of(
    fake: FakeEngine, endpoint: Endpoint, *, load_seconds: float = PATIENCE, slots: int = 1
) -> Charge:
    models = {"model": fake.folder / "m.gguf", "draft": fake.folder / "d.gguf"}
    launch = Launch("m", **models, context=512, slots=slots)
    env = {"PATH": "/usr/bin:/bin"}
    return Charge(engine_of(fake), launch, endpoint, env, load_seconds)


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
) -> AsyncIterator[Nursery]:
    events = Events()
    nursery = Nursery(Supervisor(charge, setting, events, reconsider, on_line), events)
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
