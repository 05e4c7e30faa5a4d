"""Two children of one model for a while: a new one loads while the old one serves, and the old
one goes on until its last request has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from autospec.daemon.child import Child, Lost, Note
from autospec.daemon.launcher import Launcher
from autospec.daemon.replacement import no_room_for_two
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Terms
from autospec.daemon.timing import Timing
from autospec.daemon.traffic import Traffic
from autospec.engine.waiting import to_the_end


class Beside:
    """`fresh` is the start under way; `wake` is called when an old child has ended."""

    def __init__(
        self,
        launcher: Launcher,
        traffic: Traffic,
        timing: Timing,
        around: Surroundings,
        note: Note,
        hurry: asyncio.Event,
        wake: Callable[[], None],
    ) -> None:
        self.fresh: asyncio.Task[Child] | None = None
        self._retiring: asyncio.Task[None] | None = None
        self._launcher = launcher
        self._traffic = traffic
        self._timing = timing
        self._around = around
        self._note = note
        self._hurry = hurry
        self._wake = wake

    @property
    def under_way(self) -> bool:
        return self.fresh is not None or self._retiring is not None

    async def why_not(self, child: Child, terms: Terms) -> str | None:
        """Why none can be started under `terms` beside `child`; None when one can."""
        if self._traffic.gate is None:
            return "both would listen on the same address"
        if terms.charge.launch.rpc:
            return "the memory of its workers is not seen from here"
        if child.terms.steps:
            return "memory has run out before"
        loads_draft = terms.setting.speculation.on and not child.terms.setting.speculation.on
        room = await asyncio.to_thread(self._around.room)
        if not terms.charge.on_gpu:
            room = replace(room, gpus={})
        return no_room_for_two(
            child.need, room, more=terms.charge.draft_bytes if loads_draft else 0
        )

    def start(self, terms: Terms) -> None:
        self.fresh = asyncio.create_task(self._launcher.bring_up(terms, self._hurry))

    async def taken(self) -> Child:
        """The new child, as soon as it is ready. Lost when it is not to be had."""
        assert self.fresh is not None
        try:
            await asyncio.wait({self.fresh})
            return self.fresh.result()
        finally:
            if self.fresh.done():
                self.fresh = None

    def see_off(self, old: Child) -> None:
        """Let the requests of a replaced child end, as long as they take; then end it."""
        self._retiring = asyncio.create_task(self._last_requests(old))
        self._retiring.add_done_callback(self._seen_off)

    async def _last_requests(self, old: Child) -> None:
        left = self._traffic.in_flight(old)
        if left:
            self._note(f"{left} requests end on the child before (pid {old.server.pid})")
        try:
            while left := self._traffic.in_flight(old):
                if old.session is not None:
                    old.session.beat()
                await old.read(in_flight=left)
                if (stuck := old.stuck(self._timing.patience)) is not None:
                    raise stuck
                await asyncio.sleep(self._timing.glance)
        except Lost as lost:
            self._note(f"the child before: {lost.cause.sentence}", "warning")
        finally:
            await to_the_end(self._launcher.end(old, self._hurry))
            self._note(f"the child before has ended (pid {old.server.pid})")

    def _seen_off(self, task: asyncio.Task[None]) -> None:
        if self._retiring is task:
            self._retiring = None
            self._wake()

    async def end(self) -> None:
        """End what is under way, and the children in it."""
        fresh, retiring = self.fresh, self._retiring
        self.fresh = self._retiring = None
        for task in (fresh, retiring):
            if task is not None:
                task.cancel()
        if retiring is not None:
            await asyncio.wait({retiring})
        if fresh is not None:
            with contextlib.suppress(asyncio.CancelledError, Lost):
                await self._launcher.end(await fresh, self._hurry)
