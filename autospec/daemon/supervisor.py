"""One owner for each model's child: starts it, watches it, brings it back, replaces it, ends it.

Planned restarts are in `handover`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autospec.daemon.beside import Beside
from autospec.daemon.child import Child, Lost
from autospec.daemon.chronicle import Chronicle
from autospec.daemon.course import Course
from autospec.daemon.events import Events
from autospec.daemon.gate import Gate
from autospec.daemon.handover import Handover
from autospec.daemon.ladder import Step
from autospec.daemon.launcher import Launcher, LiveOwner
from autospec.daemon.lifecycle import Life, Phase
from autospec.daemon.orphans import Roster
from autospec.daemon.pulse import Pulse
from autospec.daemon.setting import Setting
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Charge, Terms
from autospec.daemon.timing import Timing
from autospec.daemon.traffic import Traffic
from autospec.daemon.treatment import TREATMENTS, Treatment
from autospec.daemon.watch import Watch
from autospec.engine.failures import ExitCause
from autospec.engine.live.applier import HANDSHAKE_SECONDS
from autospec.engine.server import Server
from autospec.engine.waiting import to_the_end, unless

_log = logging.getLogger(__name__)


class Supervisor:
    """Owns one child from `run` to `stop`. Others read its fields and ask; none writes.

    `reconsider(setting, watch)` is asked after every reading of a child that is ready and may
    return another setting, which is put in force by a planned restart. What does not come up
    gives way to what did. `steps` are what memory is known not to allow; `on_step` is told each
    time that it made the child do without something more.
    `run` returns when it has stopped or failed for good, and may be called again after `apply`.
    """

    def __init__(
        self,
        charge: Charge,
        setting: Setting,
        events: Events,
        reconsider: Callable[[Setting, Watch], Setting | None],
        on_line: Callable[[str], None] = lambda _line: None,
        live: LiveOwner | None = None,
        *,
        gate: Gate | None = None,
        roster: Roster | None = None,
        timing: Timing | None = None,
        around: Surroundings | None = None,
        steps: Iterable[Step] = (),
        on_step: Callable[[Sequence[Step]], None] = lambda _steps: None,
    ) -> None:
        self._course = Course(Terms(charge, setting).without(*steps))
        self._timing = timing = timing or Timing()
        self._record = record = Chronicle(charge.launch.name, events, timing.pace)
        self._on_step = on_step
        around = around or Surroundings()
        self._launcher = Launcher(
            live=live,
            on_line=on_line,
            note=record.note,
            around=around,
            roster=roster,
            timing=timing,
            gated=gate is not None,
        )
        self._child: Child | None = None
        self._asked_to_stop = asyncio.Event()
        self._in_a_hurry = asyncio.Event()
        self._woken = asyncio.Event()
        self._traffic = Traffic(gate, timing.glance)
        self._beside = Beside(
            self._launcher,
            self._traffic,
            timing,
            around,
            record.note,
            self._in_a_hurry,
            self._woken.set,
        )
        self._handover = Handover(
            course=self._course,
            record=record,
            launcher=self._launcher,
            traffic=self._traffic,
            beside=self._beside,
            timing=timing,
            hurry=self._in_a_hurry,
            reconsider=reconsider,
            live=live,
        )

    @property
    def name(self) -> str:
        return self._course.terms.charge.launch.name

    @property
    def life(self) -> Life:
        return self._record.life

    @property
    def pulse(self) -> Pulse:
        return self._record.pulse

    @property
    def last_cause(self) -> ExitCause | None:
        """Of what a child died last."""
        return self._record.last_cause

    @property
    def charge(self) -> Charge:
        return self._course.terms.charge

    @property
    def setting(self) -> Setting:
        return self._course.terms.setting

    @property
    def restarts(self) -> int:
        """How many planned ones there were."""
        return self._handover.restarts

    @property
    def server(self) -> Server | None:
        """The child that serves, else the one that is loading."""
        child = self._child or self._launcher.coming
        return child.server if child else None

    @property
    def watch(self) -> Watch:
        return self._child.watch if self._child else Watch()

    @property
    def fault(self) -> str | None:
        return self._child.fault if self._child else None

    @property
    def generation(self) -> int:
        """The gate's number of the child that serves; 0 without a gate or a child."""
        return self._child.generation if self._child else 0

    @property
    def degraded(self) -> tuple[str, ...]:
        """What the child does without since memory ran out."""
        return tuple(self._course.terms.steps)

    @property
    def planned(self) -> str | None:
        """Why a planned restart is due or under way; None when none is."""
        return self._course.wish.reason if self._course.wish else None

    def stop(self, *, hurry: bool = False) -> None:
        """Ask for the end: `run` drains and returns. With `hurry` it kills and returns."""
        self._asked_to_stop.set()
        if hurry:
            self._in_a_hurry.set()

    def request_restart(self, reason: str) -> None:
        """Ask for a planned restart with what is in force."""
        self._ask(self._course.terms, reason)

    def apply(
        self, charge: Charge, setting: Setting, reason: str = "the configuration changed"
    ) -> None:
        """Ask for a planned restart with another charge. If that does not come up, the one
        before is taken again, and it is said."""
        same = charge.launch == self.charge.launch and charge.engine == self.charge.engine
        self._course.forgive()
        self._ask(Terms(charge, setting, self._course.terms.steps if same else ()), reason)

    def adopt(self, charge: Charge, setting: Setting) -> None:
        """Take over what changed around a child that may stay: it is restarted only where
        `setting` asks the engine for something else."""
        child = self._child
        if child is None or not child.terms.setting.same_launch(setting):
            self.apply(charge, setting)
            return
        child.terms = Terms(charge, setting, child.terms.steps)
        self._course.proved(child.terms)

    def _ask(self, terms: Terms, reason: str) -> None:
        self._course.ask(terms, reason)
        self._record.forgive()
        self._woken.set()

    # --- the loop -------------------------------------------------------------------------

    async def run(self) -> None:
        """Look after the child until `stop`, or until it has failed for good."""
        while not self._asked_to_stop.is_set():
            try:
                await self._one_life()
            except Exception as error:  # noqa: BLE001 - it must not end the other models as well
                _log.exception("%s", self.name)
                self._died(Lost(ExitCause("unknown", f"a fault of autospec: {error!r}")))
            if self.life.final and self._course.wish is None:
                self._launcher.close()
                self.pulse.rest()
                return
            if self.life.retry_at is not None and not self._asked_to_stop.is_set():
                pause = self.life.retry_at - time.monotonic()
                self._record.promise(pause, "waiting before the next start")
                await unless(self._asked_to_stop, self._rest(pause))
        self._launcher.close()
        self._traffic.shut("autospec is stopping")
        self._record.enter(Phase.STOPPED, "asked to stop")

    async def _rest(self, seconds: float) -> None:
        """Wait so long, or until somebody asks for something."""
        if self._course.wish is None:
            self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _one_life(self) -> None:
        """Serve until asked to stop, or until no child is there and none is coming."""
        try:
            await unless(self._asked_to_stop, self._serve())
            if self._asked_to_stop.is_set():
                await self._wind_down()
        finally:
            await self._end_all()

    async def _serve(self) -> None:
        while True:
            try:
                if (child := self._child) is None:
                    child = await self._arrive()
                    self._install(child)
                await self._turn(child)
            except Lost as lost:
                await self._bereaved(lost)
                if self._child is None:
                    return

    async def _turn(self, child: Child) -> None:
        """One look at the child that serves, and what follows from it."""
        self._woken.clear()
        self._record.promise(0.0, "reading and deciding")
        await child.read(in_flight=self._traffic.in_flight(child))
        if (stuck := child.stuck(self._timing.patience)) is not None:
            raise stuck
        self._record.settle()
        following = await self._handover.step(child)
        if following is not child:
            self._child = None
            if following is not None:
                self._install(following)
                self._beside.see_off(child)
        elif self._course.wish is None and self._traffic.dozes(child, self.life.since):
            await self._sleep(child)
        else:
            await self._pause(child)

    async def _pause(self, child: Child) -> None:
        """Until the next look: sooner when the child ends, or there is something to do."""
        woken = asyncio.create_task(self._woken.wait())
        waited: set[asyncio.Future[Any]] = {woken, child.server.exit}
        if self._beside.fresh is not None:
            waited.add(self._beside.fresh)
        try:
            await asyncio.wait(
                waited, timeout=self._timing.poll, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            woken.cancel()

    # --- arrivals and departures ----------------------------------------------------------

    async def _arrive(self) -> Child:
        """Bring a child up where there is none. Lost when it is not to be had."""
        terms = self._course.begin()
        self._record.enter(Phase.STARTING, terms.setting.reason)
        self._traffic.hold("the model is loading")
        self._record.promise(self._timing.gpu, "waiting for the GPU's memory")
        await self._launcher.gpus_are_free()
        self._record.promise(self._patience(terms), "waiting for llama-server to load")
        return await self._launcher.bring_up(terms, self._in_a_hurry, self._loading)

    def _loading(self, terms: Terms) -> None:
        self._course.trying(terms)
        self._record.enter(Phase.LOADING, terms.setting.reason)

    def _install(self, child: Child) -> None:
        """Let requests pass to a child that is ready."""
        self._child = child
        self._course.proved(child.terms)
        self._traffic.open(child)
        self._record.enter(Phase.READY, child.terms.setting.reason)

    async def _bereaved(self, lost: Lost) -> None:
        """The child has died, or must: the one that is being started, if any, takes its place."""
        child, self._child = self._child, None
        self._traffic.hold(lost.cause.sentence)
        if child is not None:
            if TREATMENTS[lost.cause.kind] is Treatment.AT_ONCE:
                self._traffic.absolve(child)
            if not child.gone:
                self._record.enter(Phase.STOPPING, lost.cause.sentence)
            await self._launcher.end(child, self._in_a_hurry, lost)
        if self._beside.fresh is None:
            self._died(lost)
            return
        self._record.last_words(lost)
        self._record.note(
            f"{lost.cause.sentence}; the child that is being started takes over", "warning"
        )
        self._record.promise(self._patience(self._course.terms), "waiting for llama-server to load")
        try:
            self._install(await self._handover.taken_over())
        except Lost as second:
            self._died(second)

    def _died(self, lost: Lost) -> None:
        """Decide what follows after a child that died unasked."""
        self._record.last_words(lost)
        treatment, step, said = self._course.treat(lost.cause)
        if said is not None:
            self._record.note(said, "warning")
        if step is not None:
            self._on_step(self._course.terms.steps)
        self._record.died(lost.cause, treatment)
        if self.life.phase is Phase.FAILED:
            self._traffic.shut(self.life.reason)
        else:
            pause = (self.life.retry_at or 0.0) - time.monotonic()
            self._traffic.hold(lost.cause.sentence, before=pause)

    async def _wind_down(self) -> None:
        """Asked to stop: let requests that are being answered end, within `Charge.drain`."""
        child = self._child
        if child is None:
            return
        self._traffic.shut("autospec is stopping")
        self._record.enter(Phase.DRAINING, "waiting for requests that are being answered")
        drain = self.charge.drain
        self._record.promise(drain + self._timing.grace, "draining")
        with contextlib.suppress(Lost):
            ended = self._traffic.emptied(child, drain, everywhere=True)
            await unless(self._in_a_hurry, ended)
        self._record.enter(Phase.STOPPING, "stopping llama-server")

    async def _end_all(self) -> None:
        """Nothing of ours runs when this returns, however often it is cancelled."""
        await to_the_end(self._ended())

    async def _ended(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await self._launcher.end(child, self._in_a_hurry)
        await self._beside.end()

    # --- idle -----------------------------------------------------------------------------

    async def _sleep(self, child: Child) -> None:
        """Unload the model until somebody asks for it."""
        # The gate shuts before the first pause: whoever comes now waits, and wakes the model.
        reason = self._traffic.sleep(child)
        self._child = None
        await to_the_end(self._launcher.end(child, self._in_a_hurry))
        self._record.enter(Phase.ASLEEP, reason)
        await self._traffic.wanted(self._woken)

    def _patience(self, terms: Terms) -> float:
        return terms.charge.load_seconds + HANDSHAKE_SECONDS
