"""The life of a child as a pure state machine: what happened in, what to do next out.

    stopped → loading → ready → draining → stopping → stopped
                 ↓         ↓
             backing off ← (died) → failed

Times are seconds of a monotonic clock. A child that dies is started again after a pause that
doubles with each death within `WINDOW`; the death after `MOST_DEATHS` of them, or one of a
kind that would only repeat itself (a bad flag, a missing model), is final until the user acts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from autospec.engine.failures import ExitCause

WINDOW = 600.0
MOST_DEATHS = 5
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


class Phase(StrEnum):
    STOPPED = "stopped"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    BACKING_OFF = "backing off"
    FAILED = "failed"


@dataclass(frozen=True)
class Life:
    """`phase` and why it was entered; `deaths` within the last `WINDOW`, oldest first."""

    phase: Phase = Phase.STOPPED
    reason: str = "not started yet"
    since: float = 0.0
    deaths: tuple[float, ...] = ()
    retry_at: float | None = None

    def enter(self, phase: Phase, reason: str, now: float) -> Life:
        return replace(self, phase=phase, reason=reason, since=now, retry_at=None)


def after_death(life: Life, cause: ExitCause, now: float, jitter: float) -> Life:
    """Where a child goes that died unasked. `jitter` in [0, 1) spreads restarts of several."""
    deaths = (*(death for death in life.deaths if now - death < WINDOW), now)
    if not cause.retry:
        life = life.enter(Phase.FAILED, f"{cause.sentence}; trying again would not help", now)
    elif len(deaths) > MOST_DEATHS:
        minutes = WINDOW / 60
        reason = f"died {len(deaths)} times within {minutes:.0f} minutes, last: {cause.sentence}"
        life = life.enter(Phase.FAILED, reason, now)
    else:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (len(deaths) - 1)) * (1 + jitter / 4)
        reason = f"{cause.sentence}; starting again in {pause:.1f} s"
        life = replace(life.enter(Phase.BACKING_OFF, reason, now), retry_at=now + pause)
    return replace(life, deaths=deaths)
