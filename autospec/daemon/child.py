"""One running child: the server, its live session, its traffic, whether it is stuck."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import httpx

from autospec.daemon.events import Level
from autospec.daemon.liveness import Liveness, Patience, Seen
from autospec.daemon.replacement import Room
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Terms
from autospec.daemon.watch import Watch
from autospec.engine.activity import private_bytes
from autospec.engine.arguments import server_argv
from autospec.engine.failures import ExitCause, speculation_fault
from autospec.engine.launch import Endpoint, Speculation
from autospec.engine.live.applier import LiveSession, live_speculation
from autospec.engine.observe import SlotState
from autospec.engine.server import Server, ServerDied, refuses
from autospec.engine.waiting import to_the_end
from autospec.errors import EngineError, ServeError
from autospec.hardware.pressure import killed_for_memory
from autospec.tuning.observations import Counters

_SILENT_TOKENS = 256
"""Tokens without one draft after which a draft model is said to be silent."""

PROBE_AFTER = 20.0
"""Seconds without any movement after which a request of our own is tried, and that it may take."""

DEAF_AFTER = 3.0
"""Seconds for which nobody has listened on the child's address until it is given up. A child that
was told to end by somebody else closes it first, and may then wait for its requests for ever."""

T = TypeVar("T")


class Note(Protocol):
    def __call__(self, text: str, level: Level = "info") -> None:
        """Say it where the user sees it."""


class Lost(Exception):
    """A child that has ended or must be ended; `tail` holds its last lines."""

    def __init__(self, cause: ExitCause, tail: Sequence[str] = ()) -> None:
        super().__init__(cause.sentence)
        self.cause = cause
        self.tail = tuple(tail)


class Child:
    """Belongs to its owner, who makes it with `start` and ends it with `end`.

    `keeps_slots`: it can save what its slots have read, in a folder that we gave it.
    `generation` is the gate's number for it, 0 before requests pass. `need` is the memory that
    it has taken, known once it is ready.
    """

    def __init__(
        self,
        terms: Terms,
        server: Server,
        endpoint: Endpoint,
        session: LiveSession | None,
        note: Note,
        around: Surroundings,
        *,
        keeps_slots: bool = False,
    ) -> None:
        self.terms = terms
        self.keeps_slots = keeps_slots
        self.server = server
        self.endpoint = endpoint
        self.session = session
        self.watch = Watch()
        self.fault: str | None = None
        self.generation = 0
        self.need = Room(None, None)
        self.began = time.monotonic()
        self.load_seconds: float | None = None
        self.refused = False
        self._note = note
        self._around = around
        self._said: set[str] = set()
        self._liveness = Liveness.new(self.began)
        self._deaf_since: float | None = None
        # Two looks: at the last one the kernel may have killed already.
        self._pressures = deque([around.pressure()], maxlen=2)

    @classmethod
    async def start(
        cls,
        terms: Terms,
        endpoint: Endpoint,
        session: LiveSession | None,
        on_line: Callable[[str], None],
        note: Note,
        around: Surroundings,
        slot_folder: Path | None = None,
    ) -> Child:
        """`slot_folder`: where it may save what its slots have read.

        OSError, ServeError or EngineError when it cannot be started."""
        charge = terms.charge
        env: Mapping[str, str] = {**charge.env, **terms.setting.environment}
        speculation = terms.setting.speculation
        descriptors: tuple[int, ...] = ()
        if session is not None:
            env, descriptors = session.environment(env), session.descriptors
            speculation = live_speculation(speculation)
        argv = server_argv(charge.engine, terms.launch, speculation, endpoint)
        if slot_folder is not None:
            argv += ["--slot-save-path", str(slot_folder)]
        server = await Server.start(argv, env, endpoint, on_line, descriptors)
        keeps_slots = slot_folder is not None
        return cls(terms, server, endpoint, session, note, around, keeps_slots=keeps_slots)

    async def ready(self) -> None:
        """Wait until it takes requests. Lost when it ends before that, or takes too long."""
        try:
            await self.server.ready(self.terms.charge.load_seconds)
        except ServerDied as death:
            raise Lost(await self._judged(death.cause), death.tail) from None
        except ServeError as late:
            sentence = f"{late} ({late.hint})" if late.hint else str(late)
            raise Lost(ExitCause("unknown", sentence), self.server.tail) from None
        self.load_seconds = time.monotonic() - self.began
        self._liveness = Liveness.new(time.monotonic())

    @property
    def gone(self) -> bool:
        return self.server.process.returncode is not None

    def private_bytes(self) -> int | None:
        """Main memory that a second such child would need again."""
        return private_bytes(self.server.pid)

    async def read(self, *, in_flight: int = 0) -> None:
        """Take a reading of slots and counters, each as far as it is to be had.

        Lost when the child has ended. `in_flight`: requests that it was given.
        """
        states, counters = await asyncio.gather(
            self._asked("/slots", self.server.slots),
            self._asked("/metrics", self.server.counters),
        )
        if states is not None:
            self.watch.slots(states, time.monotonic())
            self._check_speculation(states)
        if counters is not None:
            self.watch.counters(counters, time.monotonic())
        if self.gone:
            raise await self.lost()
        progress = None if counters is None else _unknown()
        progress = progress if states is None else _progress(states)
        await self._listens(answered=states is not None and counters is not None)
        await self._look(progress, in_flight)

    async def lost(self) -> Lost:
        """The end of an ended child, explained."""
        death = await self.server.died()
        return Lost(await self._judged(death.cause), death.tail)

    async def end(self, grace: float, hurry: asyncio.Event) -> None:
        """End it within `grace` seconds, or as soon as somebody is in a hurry."""

        async def hurried() -> None:
            await hurry.wait()
            self.server.kill()

        alarm = asyncio.create_task(hurried())
        try:
            await to_the_end(self.server.stop(grace))
        finally:
            alarm.cancel()
            if self.session is not None:
                self.session.close()

    async def _listens(self, *, answered: bool) -> None:
        """Note since when nobody listens for it any more; old connections may still be served."""
        deaf = not answered and await refuses(self.endpoint)
        self._deaf_since = (self._deaf_since or time.monotonic()) if deaf else None

    async def _look(self, progress: Hashable | None, in_flight: int) -> None:
        """Is it stuck? The processor is asked only while it is in doubt."""
        busy = in_flight > 0 or self.watch.busy_now > 0
        doubt = progress is None or busy
        pid = self.server.pid
        silent = progress is not None and not self.watch.busy_now and in_flight > 0
        if silent and self._liveness.quiet > PROBE_AFTER and await self._knocked():
            progress = _unknown()
        work = await asyncio.to_thread(self._around.activity, pid) if doubt else None
        seen = Seen(time.monotonic(), progress, busy, work)
        self._liveness = self._liveness.look(seen)
        self._pressures.append(await asyncio.to_thread(self._around.pressure))

    async def _knocked(self) -> bool:
        """Whether a token comes out: requests are with it, and no slot is at work for them.

        Their clients may read slowly; or the loop behind a healthy face is dead. Only a request
        tells, which costs a slot its cache, so nothing less doubtful is asked this way.
        """
        with contextlib.suppress(httpx.HTTPError, EngineError):
            await self.server.chat("a", tokens=1, within=PROBE_AFTER)
            return True
        return False

    def stuck(self, patience: Patience) -> Lost | None:
        """Why it must be replaced although it runs; None while there is hope."""
        if self._deaf_since is not None and time.monotonic() - self._deaf_since > DEAF_AFTER:
            sentence = "llama-server takes no connections any more: somebody has told it to end"
            return Lost(ExitCause("terminated", sentence))
        if self.terms.charge.launch.rpc:
            # The work is done elsewhere: this process may rest for as long as a batch takes.
            patience = Patience(patience.stuck, patience.stuck)
        why = self._liveness.verdict(patience)
        return None if why is None else Lost(ExitCause("wedged", f"llama-server hangs: {why}"))

    async def _judged(self, cause: ExitCause) -> ExitCause:
        """SIGKILL explained, where the kernel says for what it was."""
        if cause.kind != "killed":
            return cause
        after = await asyncio.to_thread(self._around.pressure)
        if not killed_for_memory(self._pressures[0], after):
            return ExitCause("killed", "killed by SIGKILL, and memory was not the reason")
        return ExitCause("out_of_memory", "killed by the kernel, which had no memory left")

    async def _asked(self, page: str, question: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None without one, which is said once until there is one again."""
        try:
            answer = await question()
        except (httpx.HTTPError, EngineError) as error:
            if page not in self._said and not self.gone:
                self._said.add(page)
                self._note(f"no reading of {page}: {error or type(error).__name__}", "warning")
            return None
        if page in self._said:
            self._said.remove(page)
            self._note(f"{page} can be read again")
        return answer

    def _check_speculation(self, states: Sequence[SlotState]) -> None:
        """See that the server really speculates; a fault is shown, the server goes on serving."""
        wanted, total = self.terms.setting.speculation, self.watch.total
        if self.fault is not None or not wanted.on:
            return
        if any(state.speculative is False for state in states):
            why = speculation_fault(list(self.server.tail)) or "the engine's log does not say why"
            self.fault = f"llama-server serves without speculation: {why}"
        elif _silent(total) and _drafts_always(wanted):
            self.fault = f"not one draft in {total.predicted} tokens"
        if self.fault is not None:
            self._note(self.fault, "warning")


def _silent(total: Counters) -> bool:
    """No draft in many tokens, by an engine that would tell."""
    return total.tells_drafts and total.predicted > _SILENT_TOKENS and not total.drafts


def _progress(states: Sequence[SlotState]) -> Hashable:
    """What changes while slots get on."""
    if any(state.processing and state.depth is None for state in states):
        return _unknown()
    return tuple((state.id, state.processing, state.task, state.depth) for state in states)


def _unknown() -> Hashable:
    """Where a build does not tell what its slots do, each answer counts as progress."""
    return time.monotonic()


def _drafts_always(speculation: Speculation) -> bool:
    """Whether some drafts must be seen in any text: n-gram types draft only where it repeats."""
    return any(kind.startswith("draft") for kind in speculation.types)
