"""The state of one owner as others see it: its phase and why, its word to the watchdog, events."""

from __future__ import annotations

import random
import time
from dataclasses import replace

from autospec.daemon.child import Lost
from autospec.daemon.events import Events, Level
from autospec.daemon.launcher import last_words
from autospec.daemon.lifecycle import Life, Pace, Phase, after_death, settled
from autospec.daemon.pulse import Pulse
from autospec.daemon.timing import TURN_SECONDS
from autospec.daemon.treatment import Treatment
from autospec.engine.failures import ExitCause


class Chronicle:
    """Every change of `life` is an event with its reason."""

    def __init__(self, name: str, events: Events, pace: Pace) -> None:
        self.life = Life(since=time.monotonic())
        self.pulse = Pulse(name)
        self.last_cause: ExitCause | None = None
        self._name = name
        self._events = events
        self._pace = pace

    def enter(self, phase: Phase, reason: str) -> None:
        self.life = self.life.enter(phase, reason, time.monotonic())
        if phase in (Phase.STOPPED, Phase.ASLEEP):
            self.pulse.rest()
        else:
            self.pulse.promise(TURN_SECONDS, phase)
        self.note(f"{phase}: {reason}")

    def died(self, cause: ExitCause, treatment: Treatment) -> None:
        """A child has ended unasked; `life` tells what follows."""
        self.last_cause = cause
        jitter = random.random()  # noqa: S311 - spreads restarts, guards nothing
        now = time.monotonic()
        self.life = after_death(self.life, cause, treatment, now, jitter, self._pace)
        level: Level = "error" if self.life.phase is Phase.FAILED else "warning"
        self.note(f"{self.life.phase}: {self.life.reason}", level)

    def settle(self) -> None:
        self.life = settled(self.life, time.monotonic(), self._pace)

    def forgive(self) -> None:
        """Forget deaths: what is tried next is something else."""
        self.life = replace(self.life, deaths=(), kills=(), trips=0)

    def promise(self, within: float, doing: str) -> None:
        """The owner turns within so many seconds, and a little."""
        self.pulse.promise(within + TURN_SECONDS, doing)

    def note(self, text: str, level: Level = "info") -> None:
        self._events.add(text, model=self._name, level=level)

    def last_words(self, lost: Lost) -> None:
        for line in last_words(lost.tail):
            self.note(line, "warning")
