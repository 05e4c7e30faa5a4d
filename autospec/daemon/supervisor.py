"""One owner for each child: starts it, watches it, brings it back, re-tunes it, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import httpx

from autospec.daemon.events import Events, Level
from autospec.daemon.lifecycle import Life, Phase, after_death
from autospec.daemon.pulse import Pulse
from autospec.daemon.setting import Setting
from autospec.daemon.watch import Watch
from autospec.engine.arguments import server_argv
from autospec.engine.failures import ExitCause, speculation_fault
from autospec.engine.find import Engine
from autospec.engine.launch import Endpoint, Launch, Speculation
from autospec.engine.live import trust
from autospec.engine.live.applier import (
    HANDSHAKE_SECONDS,
    LiveSession,
    explain,
    handshake,
    live_speculation,
)
from autospec.engine.live.build import LiveUnavailable
from autospec.engine.live.memory import State
from autospec.engine.observe import SlotState
from autospec.engine.server import Server, ServerDied
from autospec.engine.waiting import to_the_end, unless
from autospec.errors import AutospecError, EngineError, ServeError

_log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
DRAIN_SECONDS = 10.0
STOP_GRACE = 10.0
TURN_SECONDS = 60.0
"""Within which the owner's loop turns while it waits for nothing that has a limit of its own."""

_DRAIN_POLL = 0.2
_LAST_WORDS = 5
_SILENT_TOKENS = 256
"""Tokens without one draft after which a draft model is said to be silent."""

T = TypeVar("T")


class LiveOwner(Protocol):
    """Who decides about the live policy of a child (see `tuner`)."""

    def refuse_live(self, reason: str) -> Setting:
        """The setting for a child that cannot be steered, because of `reason`."""

    def steer(self, setting: Setting, session: LiveSession) -> None:
        """Learn from the rounds so far, and put a better policy in force if there is one."""


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

    `reconsider(setting, watch)` is asked after every reading of a child that is ready and may
    return another setting, which is put in force by a restart. A setting with which the child
    does not come up gives way to the last one with which it did.
    """

    def __init__(
        self,
        charge: Charge,
        setting: Setting,
        events: Events,
        reconsider: Callable[[Setting, Watch], Setting | None],
        on_line: Callable[[str], None] = lambda _line: None,
        live: LiveOwner | None = None,
    ) -> None:
        self.charge = charge
        self.setting = setting
        self.life = Life(since=time.monotonic())
        self.watch = Watch()
        self.pulse = Pulse(charge.launch.name)
        self.fault: str | None = None
        self.restarts = 0
        self.server: Server | None = None
        self._events = events
        self._reconsider = reconsider
        self._on_line = on_line
        self._live = live
        self._session: LiveSession | None = None
        self._proven: Setting | None = None
        self._unfit: set[Speculation] = set()
        self._said: set[str] = set()
        self._asked_to_stop = asyncio.Event()
        self._in_a_hurry = asyncio.Event()

    @property
    def name(self) -> str:
        return self.charge.launch.name

    def stop(self, *, hurry: bool = False) -> None:
        """Ask for the end: `run` drains and returns. With `hurry` it kills and returns."""
        self._asked_to_stop.set()
        if hurry:
            self._in_a_hurry.set()

    async def run(self) -> None:
        """Look after the child until `stop`, or until it has failed for good."""
        while not self._asked_to_stop.is_set():
            try:
                await self._one_life()
            except Exception as error:  # noqa: BLE001 - it must not end the other models as well
                _log.exception("%s", self.name)
                self._died(ExitCause("unknown", f"a fault of autospec: {error!r}", retry=True))
            if self.life.phase is Phase.FAILED:
                self.pulse.rest()
                return
            if self.life.retry_at is not None:
                pause = self.life.retry_at - time.monotonic()
                self.pulse.promise(pause + TURN_SECONDS, "waiting before the next start")
                await unless(self._asked_to_stop, asyncio.sleep(pause))
        self._enter(Phase.STOPPED, "asked to stop")

    async def _one_life(self) -> None:
        """From start to end of one child, which is gone when this returns."""
        self._enter(Phase.LOADING, self.setting.reason)
        self.watch, self.fault, self._said = Watch(), None, set()
        death: tuple[ExitCause, Sequence[str]] | None = None
        try:
            self.server = server = await self._start()
        except (OSError, AutospecError) as error:
            # An engine that cannot do as asked will not be able to the next time either.
            retry = not isinstance(error, EngineError)
            self._close_live(None)
            self._died(ExitCause("unknown", f"llama-server not started: {_said(error)}", retry))
            return
        try:
            await unless(self._asked_to_stop, self._serve(server))
            if self.life.phase is Phase.READY:
                await unless(self._in_a_hurry, self._drain(server))
            self._enter(Phase.STOPPING, "stopping llama-server")
        except ServerDied as end:
            death = end.cause, end.tail
        except ServeError as error:
            death = ExitCause("unknown", _said(error), retry=True), server.tail
        finally:
            await self._end(server)
            self.server = None
            self._close_live(death)
        if death is not None:
            self._died(*death)

    async def _start(self) -> Server:
        charge, env = self.charge, self.charge.env
        descriptors: tuple[int, ...] = ()
        if self.setting.live and self._live is not None:
            try:
                self._session = await asyncio.to_thread(LiveSession.open)
            except LiveUnavailable as error:
                self._refuse_live(self._live, str(error))
        speculation = self.setting.speculation
        if (session := self._session) is not None:
            env, descriptors = session.environment(env), session.descriptors
            speculation = live_speculation(speculation)
        argv = server_argv(charge.engine, charge.launch, speculation, charge.endpoint)
        return await Server.start(argv, env, charge.endpoint, self._on_line, descriptors)

    def _refuse_live(self, live: LiveOwner, reason: str) -> None:
        self._note(f"no live policy: {reason}", "warning")
        self.setting = live.refuse_live(reason)

    async def _prove_live(self, server: Server) -> bool:
        """Whether the child may serve as it was launched: live and proven, or not live."""
        live, session = self._live, self._session
        if live is None or session is None:
            return True
        n_max = self.setting.speculation.n_max
        if (reason := await handshake(session, server, n_max=n_max)) is None:
            trust.remember_proof(self.charge.engine.identity, session.library)
            self._note("the live policy works: thresholds change without a restart")
            return True
        self._refuse_live(live, reason)
        return False

    async def _serve(self, server: Server) -> None:
        """Until the child shall be replaced. ServerDied when it dies, ServeError when late."""
        patience = self.charge.load_seconds + TURN_SECONDS
        self.pulse.promise(patience, "waiting for llama-server to load")
        await server.ready(self.charge.load_seconds)
        self.pulse.promise(HANDSHAKE_SECONDS + TURN_SECONDS, "proving the live policy")
        if not await self._prove_live(server):
            return
        self._enter(Phase.READY, self.setting.reason)
        self._proven = self.setting
        while True:
            self.pulse.promise(TURN_SECONDS, "reading and deciding")
            await self._read(server)
            if self._live is not None and self._session is not None:
                self._live.steer(self.setting, self._session)
                status = self._session.status()
                if status.state is State.INERT and self.watch.idle:
                    self._refuse_live(self._live, explain(status))
                    return
            if (better := self._better()) is not None:
                self._note(f"new setting: {better.reason}")
                self.setting = better
                self.restarts += 1
                return
            if await server.ends_within(POLL_SECONDS):
                raise await server.died()

    def _better(self) -> Setting | None:
        try:
            better = self._reconsider(self.setting, self.watch)
        except Exception as error:  # noqa: BLE001 - a failed prediction must not end a server
            _log.debug("%s", self.name, exc_info=True)
            self._note_once("tuning", f"tuning failed, this setting stays: {error!r}")
            return None
        return None if better is None or better.speculation in self._unfit else better

    def _close_live(self, death: tuple[ExitCause, Sequence[str]] | None) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if death is not None and death[0].kind in ("crash", "assertion"):
            trust.remember_crash(self.charge.engine.identity, session.library, time.time())
        session.close()

    async def _drain(self, server: Server) -> None:
        """Wait, within `DRAIN_SECONDS`, until no request is being answered."""
        self._enter(Phase.DRAINING, "waiting for requests that are being answered")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._read(server)
                while self.watch.busy_now and server.process.returncode is None:
                    await asyncio.sleep(_DRAIN_POLL)
                    await self._read(server)

    async def _end(self, server: Server) -> None:
        """End the child within `STOP_GRACE`, or as soon as somebody is in a hurry."""

        async def hurried() -> None:
            await self._in_a_hurry.wait()
            server.kill()

        hurry = asyncio.create_task(hurried())
        try:
            await to_the_end(server.stop(STOP_GRACE))
        finally:
            hurry.cancel()

    async def _read(self, server: Server) -> None:
        """Take a reading of slots and counters, each as far as it is to be had."""
        if (states := await self._asked("/slots", server.slots())) is not None:
            self.watch.slots(states, time.monotonic())
            self._check_speculation(server, states)
        if (counters := await self._asked("/metrics", server.counters())) is not None:
            self.watch.counters(counters, time.monotonic())

    async def _asked(self, page: str, question: Awaitable[T]) -> T | None:
        """The answer; None without one, which is said once until there is one again."""
        try:
            answer = await question
        except (httpx.HTTPError, EngineError) as error:
            self._note_once(page, f"no reading of {page}: {error or type(error).__name__}")
            return None
        if page in self._said:
            self._said.remove(page)
            self._note(f"{page} can be read again")
        return answer

    def _check_speculation(self, server: Server, states: Sequence[SlotState]) -> None:
        """See that the server really speculates; a fault is shown, the server goes on serving."""
        wanted, total = self.setting.speculation, self.watch.total
        if self.fault is not None or not wanted.on:
            return
        if any(state.speculative is False for state in states):
            why = speculation_fault(list(server.tail)) or "the engine's log does not say why"
            self.fault = f"llama-server serves without speculation: {why}"
        elif total.predicted > _SILENT_TOKENS and not total.drafts and _drafts_always(wanted):
            self.fault = f"not one draft in {total.predicted} tokens"
        if self.fault is not None:
            self._note(self.fault, "warning")

    def _died(self, cause: ExitCause, tail: Sequence[str] = ()) -> None:
        for line in list(tail)[-_LAST_WORDS:]:
            self._note(f"last words: {line}", "warning")
        proven = self._proven
        if self.life.phase is Phase.LOADING and proven is not None and proven is not self.setting:
            self._unfit.add(self.setting.speculation)
            self._note("the new setting did not come up: back to the one before", "warning")
            self.setting = proven
            cause = replace(cause, retry=True)
        jitter = random.random()  # noqa: S311 - spreads restarts, guards nothing
        self.life = after_death(self.life, cause, time.monotonic(), jitter)
        level: Level = "error" if self.life.phase is Phase.FAILED else "warning"
        self._note(f"{self.life.phase}: {self.life.reason}", level)

    def _enter(self, phase: Phase, reason: str) -> None:
        self.life = self.life.enter(phase, reason, time.monotonic())
        if phase is Phase.STOPPED:
            self.pulse.rest()
        else:
            self.pulse.promise(TURN_SECONDS, phase)
        self._note(f"{phase}: {reason}")

    def _note_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._note(text, "warning")

    def _note(self, text: str, level: Level = "info") -> None:
        self._events.add(text, model=self.name, level=level)


def _said(error: Exception) -> str:
    hint = error.hint if isinstance(error, AutospecError) else None
    return f"{error} ({hint})" if hint else str(error)


def _drafts_always(speculation: Speculation) -> bool:
    """Whether some drafts must be seen in any text: n-gram types draft only where it repeats."""
    return any(kind.startswith("draft") for kind in speculation.types)
