"""The life of a child as a pure state machine: what happened in, what to do next out.

    stopped → starting → loading → ready ⇄ draining → stopping → stopped
                 ↑          ↓        ↓                    ↓
                 ├──── backing off ←─┘                  asleep → starting
                 └──── failed

Times are seconds of a monotonic clock. A child that dies is started again after a pause that
doubles with each death within `Pace.window`. A death too many opens the breaker: the child
counts as failed, and after a cool-down one more try is made (the breaker is half open). If that
dies too, the next cool-down is twice as long; once a child has been ready for `Pace.steady`, all
is forgotten. A child that served and was ended from outside is followed by the next at once,
unless that happens `Pace.most_kills` times within a window. A cause that would only repeat itself
is final until the user acts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from autospec.daemon.treatment import Treatment
from autospec.engine.failures import ExitCause


class Phase(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    ASLEEP = "asleep"
    BACKING_OFF = "backing off"
    FAILED = "failed"


@dataclass(frozen=True)
class Pace:
    """Seconds; how many deaths within `window` the breaker bears; how many ends from outside
    within it are followed by the next child without a pause."""

    window: float = 600.0
    most_deaths: int = 5
    most_kills: int = 30
    first_pause: float = 1.0
    longest_pause: float = 60.0
    cool_down: float = 300.0
    longest_cool_down: float = 3600.0
    steady: float = 120.0


@dataclass(frozen=True)
class Life:
    """`phase` and why it was entered; `deaths` within the last window, oldest first, and `kills`,
    ends from outside while it served; `trips`: how often in a row the breaker has opened;
    `retry_at`: when the next start is due."""

    phase: Phase = Phase.STOPPED
    reason: str = "not started yet"
    since: float = 0.0
    deaths: tuple[float, ...] = ()
    kills: tuple[float, ...] = ()
    trips: int = 0
    retry_at: float | None = None

    def enter(self, phase: Phase, reason: str, now: float) -> Life:
        return replace(self, phase=phase, reason=reason, since=now, retry_at=None)

    @property
    def final(self) -> bool:
        """It has failed, and no further try is made by itself."""
        return self.phase is Phase.FAILED and self.retry_at is None


def after_death(
    life: Life, cause: ExitCause, treatment: Treatment, now: float, jitter: float, pace: Pace
) -> Life:
    """Where a child goes that died unasked. `jitter` in [0, 1) spreads restarts of several."""
    served = life.phase in (Phase.READY, Phase.DRAINING)
    if treatment is Treatment.AT_ONCE and served:
        kills = _recent(life.kills, now, pace)
        if len(kills) <= pace.most_kills:
            return _followed(replace(life, kills=kills), cause, now, 0.0)
    deaths = _recent(life.deaths, now, pace)
    life = replace(life, deaths=deaths)
    if treatment not in (Treatment.RETRY, Treatment.AT_ONCE):
        return life.enter(Phase.FAILED, f"{cause.sentence}; trying again would not help", now)
    if life.trips or len(deaths) > pace.most_deaths:
        return _tripped(life, cause, now, jitter, pace)
    doubled = pace.first_pause * 2.0 ** (len(deaths) - 1)
    return _followed(life, cause, now, min(pace.longest_pause, doubled) * (1 + jitter / 4))


def _recent(times: tuple[float, ...], now: float, pace: Pace) -> tuple[float, ...]:
    return (*(at for at in times if now - at < pace.window), now)


def _followed(life: Life, cause: ExitCause, now: float, pause: float) -> Life:
    """The next child starts after `pause` seconds."""
    when = f"in {pause:.1f} s" if pause else "at once"
    reason = f"{cause.sentence}; starting again {when}"
    return replace(life.enter(Phase.BACKING_OFF, reason, now), retry_at=now + pause)


def _tripped(life: Life, cause: ExitCause, now: float, jitter: float, pace: Pace) -> Life:
    doubled = pace.cool_down * 2.0 ** min(life.trips, 30)
    pause = min(pace.longest_cool_down, doubled) * (1 + jitter / 4)
    what = (
        "died again at the try after the pause"
        if life.trips
        else f"died {len(life.deaths)} times within {pace.window / 60:.0f} minutes"
    )
    reason = f"{what}, last: {cause.sentence}; one more try in {pause:.0f} s"
    life = life.enter(Phase.FAILED, reason, now)
    return replace(life, trips=life.trips + 1, retry_at=now + pause)


def settled(life: Life, now: float, pace: Pace) -> Life:
    """Forget deaths once a child has been ready for long enough."""
    steady = life.phase is Phase.READY and now - life.since >= pace.steady
    if not steady or not (life.trips or life.deaths):
        return life
    return replace(life, trips=0, deaths=() if life.trips else life.deaths)
