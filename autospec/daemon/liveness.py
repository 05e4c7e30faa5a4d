"""Is a child stuck? Pure: what was seen in, a verdict out.

An answer of `/slots` proves little. Builds since August 2026 (llama.cpp pull request 27041) give
one while a batch is at work; older ones only between two batches, which can take minutes each.
What counts is whether slots get on, and whether the process works. Two limits are kept, in
seconds of the monotonic clock:

    still     neither did a slot get on, nor was the process seen to work at all
    stuck     the process works, and for so long no slot got on and no answer came
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from autospec.engine.activity import Activity

LEAST_WORK = 0.05
"""Share of one processor under which a process is not at work: our own questions cost less."""


@dataclass(frozen=True)
class Patience:
    still: float = 60.0
    stuck: float = 900.0


@dataclass(frozen=True)
class Seen:
    """One look. `progress` is whatever changes while slots get on: None when `/slots` was not
    answered. `busy`: a slot is at work, or a request is in flight."""

    now: float
    progress: Hashable | None
    busy: bool
    activity: Activity | None


@dataclass(frozen=True)
class Liveness:
    """`moved`: when all was well, that is, idle and answering, or a slot had got on.
    `worked`: when the process was last seen at work."""

    moved: float
    worked: float
    progress: Hashable | None = None
    activity: Activity | None = None
    at: float = 0.0

    @classmethod
    def new(cls, now: float) -> Liveness:
        return cls(moved=now, worked=now, at=now)

    def look(self, seen: Seen) -> Liveness:
        answered = seen.progress is not None
        well = answered and (not seen.busy or seen.progress != self.progress)
        return replace(
            self,
            moved=seen.now if well else self.moved,
            worked=seen.now if self._at_work(seen) else self.worked,
            progress=seen.progress if answered else self.progress,
            activity=seen.activity,
            at=seen.now,
        )

    def _at_work(self, seen: Seen) -> bool:
        if seen.activity is None or self.activity is None:
            return False
        done = seen.activity.since(self.activity)
        return done.fetched > 0 or done.seconds > LEAST_WORK * (seen.now - self.at)

    @property
    def quiet(self) -> float:
        """For how long nothing at all has moved."""
        return self.at - max(self.moved, self.worked)

    def verdict(self, patience: Patience) -> str | None:
        """Why the child must be replaced; None while there is hope."""
        without = self.at - self.moved
        if self.quiet > patience.still:
            return f"nothing has moved in it for {self.quiet:.0f} s"
        if without > patience.stuck:
            return f"it works, and has got nowhere for {without:.0f} s"
        return None
