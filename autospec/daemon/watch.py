"""What a child's traffic looks like, from the engine's counters and slots.

Counters move when a request ends, and only their differences count; a counter that went down
is another server, and the next reading starts anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from autospec.engine.metrics import ServerCounters, difference
from autospec.engine.observe import SlotState
from autospec.tuning.observations import Counters

NOTHING = Counters(drafts=0, drafted=0, accepted=0, per_position=())
_WINDOW = 60.0
_SETTLED = 3


def add(one: Counters, other: Counters) -> Counters:
    """The totals of two spans together; positions that one span lacks count as none accepted."""
    longest = max(len(one.per_position), len(other.per_position))
    padded = [
        counters.per_position + (0,) * (longest - len(counters.per_position))
        for counters in (one, other)
    ]
    return Counters(
        drafts=one.drafts + other.drafts,
        drafted=one.drafted + other.drafted,
        accepted=one.accepted + other.accepted,
        per_position=tuple(a + b for a, b in zip(*padded, strict=True)),
        predicted=one.predicted + other.predicted,
        predicted_seconds=one.predicted_seconds + other.predicted_seconds,
        tells_drafts=one.tells_drafts and other.tells_drafts,
    )


@dataclass
class Watch:
    """The traffic under one setting. Feed it with `counters` and `slots`; times are monotonic.

    `total` is everything since the setting came into force, `began` when the first token was
    seen to be generated. `depth` (tokens) and `busy` (slots) are means over the readings in
    which a slot was at work, `depth_now` and `busy_now` those of the last reading.
    """

    total: Counters = NOTHING
    began: float | None = None
    busy_now: int = 0
    depth_now: float = 0.0
    _last: ServerCounters | None = None
    _recent: deque[tuple[float, Counters]] = field(default_factory=deque)
    _readings: int = 0
    _depth_sum: float = 0.0
    _busy_sum: int = 0
    _idle_readings: int = 0

    def counters(self, reading: ServerCounters, now: float) -> None:
        before, self._last = self._last, reading
        span = difference(before, reading) if before is not None else None
        if span is None or not span.predicted:
            return
        self.total = add(self.total, span)
        self._at_work(now)
        self._recent.append((now, span))
        while self._recent and now - self._recent[0][0] > _WINDOW:
            self._recent.popleft()

    def slots(self, states: Sequence[SlotState], now: float) -> None:
        working = [state for state in states if state.processing]
        self.busy_now = len(working)
        self._idle_readings = 0 if working else self._idle_readings + 1
        if working:
            self._at_work(now)
            depths = [state.depth or 0 for state in working]
            self.depth_now = sum(depths) / len(depths)
            self._readings += 1
            self._busy_sum += len(working)
            self._depth_sum += self.depth_now

    def _at_work(self, now: float) -> None:
        if self.began is None:
            self.began = now

    @property
    def idle(self) -> bool:
        """Nothing was at work in the last few readings."""
        return self._idle_readings >= _SETTLED

    @property
    def depth(self) -> float | None:
        return self._depth_sum / self._readings if self._readings else None

    @property
    def busy(self) -> float | None:
        return self._busy_sum / self._readings if self._readings else None

    def rate(self, now: float) -> float | None:
        """Tokens/s of one request over the last minute, None without traffic in it."""
        spans = [span for at, span in self._recent if now - at <= _WINDOW]
        seconds = sum(span.predicted_seconds for span in spans)
        return sum(span.predicted for span in spans) / seconds if seconds > 0 else None

    @property
    def mean_rate(self) -> float | None:
        """Tokens/s of one request since the setting came into force."""
        if self.total.predicted_seconds <= 0:
            return None
        return self.total.predicted / self.total.predicted_seconds
