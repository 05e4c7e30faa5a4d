"""One owner for each child: starts it, watches it, brings it back, re-tunes it, ends it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from autospec.daemon.events import Events, Level
from autospec.daemon.lifecycle import Life, Phase, after_death
from autospec.daemon.setting import Setting
from autospec.daemon.watch import Watch
from autospec.engine.arguments import server_argv
from autospec.engine.failures import ExitCause, speculation_fault
from autospec.engine.find import Engine
from autospec.engine.launch import Endpoint, Launch
from autospec.engine.server import Server, ServerDied
from autospec.errors import EngineError, ServeError

POLL_SECONDS = 1.0
DRAIN_SECONDS = 10.0
STOP_GRACE = 10.0


@dataclass(frozen=True)
class Charge:
    """What a supervisor is given to look after."""

    engine: Engine
    launch: Launch
    endpoint: Endpoint
    env: Mapping[str, str]
    load_seconds: float


class Supervisor:
    """Owns one child from `run` to `stop`. Others read its fields and call `stop`; none writes.

    `reconsider(watch, idle)` is asked after every reading and may return another setting, which
    is put in force by a restart; it is asked only while the child is ready.
    """

    def __init__(
        self,
        charge: Charge,
        setting: Setting,
        events: Events,
        reconsider: Callable[[Setting, Watch], Setting | None],
        on_line: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.charge = charge
        self.setting = setting
        self.life = Life(since=time.monotonic())
        self.watch = Watch()
        self.fault: str | None = None
        self.restarts = 0
        self.server: Server | None = None
        self._events = events
        self._reconsider = reconsider
        self._on_line = on_line
        self._asked_to_stop = asyncio.Event()
        self._in_a_hurry = asyncio.Event()

    @property
    def name(self) -> str:
        return self.charge.launch.name

    def stop(self, *, hurry: bool = False) -> None:
        """Ask for the end: `run` drains and returns. With `hurry` it does not drain."""
        self._asked_to_stop.set()
        if hurry:
            self._in_a_hurry.set()

    async def run(self) -> None:
        """Look after the child until `stop`, or until it has failed for good."""
        while not self._asked_to_stop.is_set():
            await self._one_life()
            if self.life.phase is Phase.FAILED:
                return
            if self.life.retry_at is not None:
                await self._pause(self.life.retry_at - time.monotonic())
        self._enter(Phase.STOPPED, "asked to stop")

    async def _one_life(self) -> None:
        self._enter(Phase.LOADING, self.setting.reason)
        self.watch, self.fault = Watch(), None
        charge = self.charge
        argv = server_argv(charge.engine, charge.launch, self.setting.speculation, charge.endpoint)
        try:
            server = await Server.start(argv, charge.env, charge.endpoint, self._on_line)
        except OSError as error:
            self._died(ExitCause("unknown", f"llama-server cannot be started: {error}", False))
            return
        self.server = server
        try:
            if await self._unless_stopped(server.ready(charge.load_seconds)):
                await self._verify_speculation(server)
                self._enter(Phase.READY, self.setting.reason)
                await self._attend(server)
            await self._end(server)
        except ServerDied as death:
            self._died(death.cause, death.tail)
        except ServeError as error:
            self._died(ExitCause("unknown", str(error), True), tuple(server.tail))
        finally:
            await asyncio.shield(server.stop(grace=0.0 if self._hurry else STOP_GRACE))
            self.server = None

    @property
    def _hurry(self) -> bool:
        return self._in_a_hurry.is_set()

    async def _attend(self, server: Server) -> None:
        """Watch the child; returns when it has to end, raises ServerDied when it died."""
        while not await self._pause(POLL_SECONDS, server):
            if server.process.returncode is not None:
                raise await server.died()
            await self._read(server)
            if (better := self._reconsider(self.setting, self.watch)) is not None:
                self._note(f"new setting: {better.reason}")
                self.setting = better
                self.restarts += 1
                return

    async def _read(self, server: Server) -> None:
        now = time.monotonic()
        try:
            self.watch.counters(await server.counters(), now)
            self.watch.slots(await server.slots(), now)
        except (httpx.HTTPError, EngineError) as error:
            self._note(f"no reading: {error or type(error).__name__}", "warning")
            return
        if self.setting.speculation.on and not self.fault and self.watch.total.predicted > 64:
            self._notice_silence()

    def _notice_silence(self) -> None:
        total = self.watch.total
        if total.drafts == 0 and total.drafted == 0 and total.per_position:
            self.fault = "speculation was asked for, but not one draft was made"
            self._note(self.fault, "warning")

    async def _verify_speculation(self, server: Server) -> None:
        """See that the server really speculates; a fault is shown, the server goes on serving."""
        if not self.setting.speculation.on:
            return
        try:
            states = await server.slots()
        except (httpx.HTTPError, EngineError):
            return
        if any(state.speculative is False for state in states):
            why = speculation_fault(list(server.tail)) or "the engine's log does not say why"
            self.fault = f"llama-server serves without speculation: {why}"
            self._note(self.fault, "warning")

    async def _end(self, server: Server) -> None:
        self._enter(Phase.DRAINING, "waiting for requests that are being answered")
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline and not self._hurry:
            await self._read(server)
            if self.watch.busy_now == 0 or server.process.returncode is not None:
                break
            await asyncio.sleep(0.2)
        self._enter(Phase.STOPPING, "stopping llama-server")

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do `work` to its end (True), or drop it when `stop` is asked (False)."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._asked_to_stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            await task
            return True
        finally:
            task.cancel()
            stop.cancel()

    async def _pause(self, seconds: float, server: Server | None = None) -> bool:
        """Sleep, waking early when `stop` is asked (True) or the server ends."""
        waits: set[asyncio.Task[Any]] = {asyncio.create_task(self._asked_to_stop.wait())}
        if server is not None:
            waits.add(asyncio.create_task(server.process.wait()))
        await asyncio.wait(waits, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self._asked_to_stop.is_set()

    def _died(self, cause: ExitCause, tail: tuple[str, ...] = ()) -> None:
        for line in tail[-5:]:
            self._note(f"last words: {line}", "warning")
        jitter = random.random()  # noqa: S311 - spreads restarts, guards nothing
        self.life = after_death(self.life, cause, time.monotonic(), jitter)
        level: Literal["error", "warning"] = (
            "error" if self.life.phase is Phase.FAILED else "warning"
        )
        self._note(f"{self.life.phase}: {self.life.reason}", level)

    def _enter(self, phase: Phase, reason: str) -> None:
        self.life = self.life.enter(phase, reason, time.monotonic())
        self._note(f"{phase}: {reason}")

    def _note(self, text: str, level: Level = "info") -> None:
        self._events.add(text, model=self.name, level=level)
