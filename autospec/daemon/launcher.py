"""Brings children of one model up, each until it is ready and proven, and ends them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from autospec import paths
from autospec.daemon.caches import Caches
from autospec.daemon.child import Child, Lost, Note
from autospec.daemon.orphans import Roster
from autospec.daemon.replacement import Room, given_back, socket_for, taken
from autospec.daemon.setting import Setting
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Terms
from autospec.daemon.timing import Timing
from autospec.engine.arguments import unknown_extra
from autospec.engine.failures import ExitCause, ExitKind
from autospec.engine.find import current
from autospec.engine.launch import Endpoint
from autospec.engine.live import trust
from autospec.engine.live.applier import LiveSession, handshake
from autospec.engine.live.build import LiveUnavailable
from autospec.errors import AutospecError, EngineError

_NO_GPU = Room(None, {})


class LiveOwner(Protocol):
    """Who decides about the live policy of a child (see `tuner`)."""

    def refuse_live(self, reason: str) -> Setting:
        """The setting for a child that cannot be steered, because of `reason`."""

    def steer(self, setting: Setting, session: LiveSession) -> None:
        """Learn from the rounds so far, and put a better policy in force if there is one."""


class Launcher:
    """`coming` is the child that is loading. With `gated`, each child gets a socket of its own
    in the private runtime folder; otherwise it listens where its charge says."""

    def __init__(
        self,
        *,
        live: LiveOwner | None,
        on_line: Callable[[str], None],
        note: Note,
        around: Surroundings,
        roster: Roster | None,
        timing: Timing,
        gated: bool,
    ) -> None:
        self.coming: Child | None = None
        self._live = live
        self._on_line = on_line
        self._note = note
        self._around = around
        self._roster = roster
        self._timing = timing
        self._gated = gated
        self._number = 0
        self._alive: set[Child] = set()
        self._caches = Caches(note, timing.saving)
        self._empty = _NO_GPU

    async def bring_up(
        self,
        terms: Terms,
        hurry: asyncio.Event,
        loading: Callable[[Terms], None] = lambda _terms: None,
    ) -> Child:
        """A child that takes requests. Lost when it is not to be had, and it is gone then.

        `loading` is told of each start, with the terms as far as they could be kept. An engine
        that was updated meanwhile is asked anew what it can do.
        """
        terms = await self._renewed(terms)
        while True:
            before = await self._memory(terms)
            child = await self._start(terms)
            self.coming = child
            proven = False
            death: Lost | None = None
            try:
                loading(child.terms)
                await child.ready()
                reason = await self._doubt(child)
                proven = reason is None
            except Lost as lost:
                death = lost
                raise
            finally:
                self.coming = None
                if not proven:
                    await self.end(child, hurry, death)
            if reason is None:
                await self._caches.restore(child)
                child.need = taken(before, await self._memory(terms), child.private_bytes())
                return child
            terms = self._refused(terms, reason)

    async def _renewed(self, terms: Terms) -> Terms:
        """`terms` for the engine's files as they are now. Lost where that cannot serve them."""
        charge = terms.charge
        try:
            engine = await asyncio.to_thread(current, charge.engine)
        except (OSError, EngineError) as error:
            # Perhaps it is being replaced at this moment.
            raise Lost(ExitCause("unknown", f"llama-server not started: {_said(error)}")) from error
        if engine is charge.engine:
            return terms
        self._note(f"the engine was updated: {engine.version}")
        if strange := unknown_extra(engine, charge.launch.extra):
            first = strange[0]
            advice = f" ({first.advice})" if first.advice else ""
            sentence = f"the updated llama-server does not know {first.argument}{advice}"
            raise Lost(ExitCause("unable", sentence))
        return replace(terms, charge=replace(charge, engine=engine))

    async def _start(self, terms: Terms) -> Child:
        session = None
        if terms.setting.live and self._live is not None:
            try:
                session = await asyncio.to_thread(LiveSession.open)
            except LiveUnavailable as error:
                terms = self._refused(terms, str(error))
        try:
            endpoint = self._endpoint(terms)
            folder = self._caches.folder(terms) if self._gated else None
            child = await Child.start(
                terms, endpoint, session, self._on_line, self._note, self._around, folder
            )
        except (OSError, AutospecError) as error:
            if session is not None:
                session.close()
            # An engine that cannot do as asked will not be able to the next time either.
            kind: ExitKind = "unable" if isinstance(error, EngineError) else "unknown"
            raise Lost(ExitCause(kind, f"llama-server not started: {_said(error)}")) from error
        self._alive.add(child)
        if self._roster is not None and child.server.program.identity is not None:
            self._roster.add(child.server.program.identity, endpoint.socket)
        return child

    def _endpoint(self, terms: Terms) -> Endpoint:
        if not self._gated:
            return terms.charge.endpoint
        self._number += 1
        folder = paths.private(paths.runtime())
        return Endpoint(socket=socket_for(folder, terms.charge.launch.name, self._number))

    async def _doubt(self, child: Child) -> str | None:
        """Why the child must not serve as it was launched; None: it is proven, or not live."""
        if child.session is None:
            return None
        n_max = child.terms.setting.speculation.n_max
        reason = await handshake(child.session, child.server, n_max=n_max)
        if reason is None:
            engine = child.terms.charge.engine.identity
            trust.remember_proof(engine, child.session.library)
            self._note("the live policy works: thresholds change without a restart")
        return reason

    def _refused(self, terms: Terms, reason: str) -> Terms:
        assert self._live is not None
        self._note(f"no live policy: {reason}", "warning")
        return replace(terms, setting=self._live.refuse_live(reason))

    async def keep(self, child: Child, following: Terms) -> None:
        """Keep what an empty child has read for the next one."""
        await self._caches.save(child, following)

    def close(self) -> None:
        """No child is left, and none follows."""
        self._caches.close()

    async def end(self, child: Child, hurry: asyncio.Event, death: Lost | None = None) -> None:
        """End a child; `death` tells how it had ended already."""
        session = child.session
        if session and death and death.cause.kind in ("crash", "assertion"):
            engine = child.terms.charge.engine.identity
            trust.remember_crash(engine, session.library, time.time())
        try:
            await child.end(self._timing.grace, hurry)
        finally:
            self._alive.discard(child)
            socket = child.endpoint.socket
            if self._gated and socket is not None and socket.is_socket():
                socket.unlink(missing_ok=True)
            if self._roster is not None and child.server.program.identity is not None:
                self._roster.remove(child.server.program.identity)

    async def _memory(self, terms: Terms) -> Room:
        """What is free now; of the GPUs only where the engine has some."""
        if not terms.charge.on_gpu:
            return _NO_GPU
        room = await asyncio.to_thread(self._around.room)
        if not self._alive:
            self._empty = room
        return room

    async def gpus_are_free(self) -> None:
        """Wait, within `Timing.gpu`, until the GPUs have given back what the last child had."""
        if not self._empty.gpus:
            return
        began = time.monotonic()
        while not given_back(self._empty, await asyncio.to_thread(self._around.room)):
            if time.monotonic() - began > self._timing.gpu:
                self._note(
                    f"the GPU has not given all memory back within {self._timing.gpu:.0f} s: "
                    f"something else may have taken it",
                    "warning",
                )
                return
            await asyncio.sleep(self._timing.glance)


def last_words(tail: Sequence[str], most: int = 5) -> list[str]:
    return [f"last words: {line}" for line in list(tail)[-most:]]


def _said(error: Exception) -> str:
    hint = error.hint if isinstance(error, AutospecError) else None
    return f"{error} ({hint})" if hint else str(error)
