"""Planned restarts of one child: for a better setting, another configuration, or on request.

No request is cut for one. Where memory allows two children, the new one is started beside the
old one, requests switch over, and the old one ends once it is empty. Elsewhere new requests wait
at the gate while the old child empties; if that takes too long, they go on to the old one, and
the restart is tried again later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from autospec.daemon.beside import Beside
from autospec.daemon.child import Child, Lost
from autospec.daemon.chronicle import Chronicle
from autospec.daemon.course import Course, Wish
from autospec.daemon.launcher import Launcher, LiveOwner
from autospec.daemon.lifecycle import Phase
from autospec.daemon.setting import Setting
from autospec.daemon.timing import Timing
from autospec.daemon.traffic import Traffic
from autospec.daemon.watch import Watch
from autospec.engine.live.applier import explain
from autospec.engine.live.memory import State
from autospec.engine.waiting import to_the_end

_log = logging.getLogger(__name__)


class Handover:
    """Belongs to the owner of the child, who calls `step` at each look. `restarts` counts."""

    def __init__(
        self,
        *,
        course: Course,
        record: Chronicle,
        launcher: Launcher,
        traffic: Traffic,
        beside: Beside,
        timing: Timing,
        hurry: asyncio.Event,
        reconsider: Callable[[Setting, Watch], Setting | None],
        live: LiveOwner | None,
    ) -> None:
        self.restarts = 0
        self._course = course
        self._record = record
        self._launcher = launcher
        self._traffic = traffic
        self._beside = beside
        self._timing = timing
        self._hurry = hurry
        self._reconsider = reconsider
        self._live = live
        self._carried: Wish | None = None
        self._tuning_failed = False

    async def step(self, child: Child) -> Child | None:
        """Who serves from now on: `child`, a new one that is ready, or nobody yet."""
        self._think(child)
        if (fresh := self._beside.fresh) is not None:
            return await self._switched(child) if fresh.done() else child
        if (wish := self._course.wish) is not None:
            return await self._fulfil(child, wish)
        return child

    def _think(self, child: Child) -> None:
        """Steer, and see whether something better is to be put in force."""
        if self._live is not None and child.session is not None:
            self._live.steer(child.terms.setting, child.session)
            status = child.session.status()
            if status.state is State.INERT and not child.refused:
                child.refused = True
                reason = explain(status)
                self._record.note(f"no live policy: {reason}", "warning")
                refused = replace(child.terms, setting=self._live.refuse_live(reason))
                self._course.ask(refused, f"no live policy: {reason}")
        if self._course.wish is not None or self._beside.under_way:
            return
        better = self._better(child)
        if better is not None:
            self._record.note(f"new setting: {better.reason}")
            self._course.ask(replace(child.terms, setting=better), better.reason)

    def _better(self, child: Child) -> Setting | None:
        try:
            better = self._reconsider(child.terms.setting, child.watch)
        except Exception as error:  # noqa: BLE001 - a failed prediction must not end a server
            _log.debug("%s", child.terms.charge.launch.name, exc_info=True)
            if not self._tuning_failed:
                self._tuning_failed = True
                self._record.note(f"tuning failed, this setting stays: {error!r}", "warning")
            return None
        return better if better is not None and self._course.accepts(better) else None

    async def _fulfil(self, child: Child, wish: Wish) -> Child | None:
        """Carry a planned restart out, or put it off."""
        if self._beside.under_way or time.monotonic() < wish.not_before:
            return child
        why_not = await self._beside.why_not(child, wish.terms)
        if why_not is None:
            self._record.note(
                f"{wish.reason}: starting the new child beside the one that serves, which is "
                f"slower meanwhile"
            )
            self._carried = wish
            self._beside.start(wish.terms)
        elif self._traffic.gate is not None or child.watch.idle:
            return await self._in_turn(child, wish, why_not)
        return child

    async def _switched(self, old: Child) -> Child:
        """The child beside the old one is ready, or is not to be had."""
        wish = self._give_up()
        try:
            new = await self._beside.taken()
        except Lost as lost:
            self._record.last_cause = lost.cause
            self._record.last_words(lost)
            self._record.note(f"the new child: {lost.cause.sentence}", "warning")
            if wish is not None:
                self._record.note(self._course.forsake(wish.terms), "warning")
            return old
        self.restarts += 1
        return new

    async def taken_over(self) -> Child:
        """The child that is being started, since the old one has died. Lost without one."""
        self._give_up()
        return await self._beside.taken()

    def _give_up(self) -> Wish | None:
        """The wish that was being carried out; a later one stays."""
        wish, self._carried = self._carried, None
        self._course.done(wish)
        return wish

    async def _in_turn(self, child: Child, wish: Wish, why: str) -> Child | None:
        """Empty the old child and end it, for the new one to be started; or put it off."""
        record, within = self._record, self._timing.yielding
        record.enter(Phase.DRAINING, f"{wish.reason} (not beside the old child: {why})")
        record.promise(within, "draining")
        self._traffic.hold(wish.reason, before=within)
        if await self._traffic.emptied(child, within):
            record.promise(self._timing.saving, "saving what slots have read")
            await self._launcher.keep(child, wish.terms)
            self.restarts += 1
            record.enter(Phase.STOPPING, wish.reason)
            record.promise(self._timing.grace, "stopping llama-server")
            await to_the_end(self._launcher.end(child, self._hurry))
            return None
        self._traffic.reopen()
        wish.put_off(time.monotonic(), self._timing.again, self._timing.longest_again)
        record.enter(
            Phase.READY,
            f"requests still run after {within:.0f} s; the restart is tried again in "
            f"{wish.pause:.0f} s",
        )
        return child
