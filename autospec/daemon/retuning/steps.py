"""From rounds of single slots, as telemetry tells them, to steps of all busy slots together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from autospec.engine.live.telemetry import LiveRound

_LATE = 3
"""A slot whose draft was empty gets its verdict with its next draft: so many later steps are
awaited before a step counts as complete without it."""

_MOST_OPEN = 64


@dataclass(frozen=True)
class Step:
    """What the `rounds` of the slots that drafted together took.

    `busy` slots took part, `depth` is their mean context in tokens. Times in ms: `draft_ms` and
    `verify_ms` as the engine was seen to spend them, `whole_ms` to the beginning of the next step
    where the same text went on, else their sum.
    """

    rounds: tuple[LiveRound, ...]
    busy: int
    depth: float
    draft_ms: float
    verify_ms: float
    whole_ms: float

    @property
    def tokens(self) -> list[int]:
        """Tokens that each slot made."""
        return [one.round.accepted + 1 for one in self.rounds]

    @property
    def steps(self) -> int:
        """Draft steps that were paid, by the slot that paid most; a cut pays one more."""
        return max(one.round.drafted + (one.round.cut_p is not None) for one in self.rounds)

    @property
    def batch(self) -> float:
        """Tokens that each slot sent to the target, on average."""
        return 1.0 + sum(one.round.drafted for one in self.rounds) / len(self.rounds)


@dataclass
class Steps:
    """Feed it with rounds in the order of the ring; it gives back the steps that are complete."""

    _open: dict[float, list[LiveRound]] = field(default_factory=dict)
    _ready: list[list[LiveRound]] = field(default_factory=list)

    def take(self, rounds: Iterable[LiveRound]) -> list[Step]:
        for one in rounds:
            self._open.setdefault(one.began, []).append(one)
        begins = sorted(self._open)
        for index, began in enumerate(begins):
            group = self._open[began]
            late = len(begins) - index > _LATE or len(begins) > _MOST_OPEN
            if len(group) >= group[0].busy or late:
                self._ready.append(self._open.pop(began))
            else:
                break
        steps = [_step(a, b) for a, b in zip(self._ready, self._ready[1:], strict=False)]
        self._ready = self._ready[-1:]
        return steps


def _step(group: list[LiveRound], following: list[LiveRound]) -> Step:
    timed = [one.round for one in group]
    draft_ms = max(one.draft_ms or 0.0 for one in timed)
    verify_ms = max(one.verify_ms or 0.0 for one in timed)
    whole_ms = draft_ms + verify_ms
    ends = {one.slot: one.depth + one.round.accepted + 1 for one in group}
    if any(ends.get(one.slot) == one.depth for one in following):
        whole_ms = max(whole_ms, 1000.0 * (following[0].began - group[0].began))
    return Step(
        rounds=tuple(group),
        busy=group[0].busy,
        depth=sum(one.depth for one in group) / len(group),
        draft_ms=draft_ms,
        verify_ms=verify_ms,
        whole_ms=whole_ms,
    )
