"""Rounds as the library reports them, read without stopping anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autospec.engine.live.memory import ENTRIES, POSITIONS, SLOTS, RingFile, RoundFlag
from autospec.tuning.observations import Round

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class LiveRound:
    """One round of one slot; `round` is what the tuning room learns from.

    `slot`, `busy` (slots that drafted together), `depth` (tokens of context before the round),
    `began` (seconds of the monotonic clock) and `policy` (number of the policy held) tell where it
    belongs. `obeyed`: a policy was in force; `cut`: it ended the draft; `skipped`: it left out
    drafting. `second` and `purity` are features of each token of `round.p` and of the cut one:
    the second candidate's probability, and the sum of p² over the candidates.
    `draft_ms` is the time of the draft call, which the busy slots share; `verify_ms` runs from its
    end to the verdict, sampling included.
    """

    round: Round
    slot: int
    busy: int
    depth: int
    began: float
    policy: int
    obeyed: bool
    cut: bool
    skipped: bool
    second: tuple[float, ...]
    purity: tuple[float, ...]


class RoundReader:
    """Each call of `take` gives the rounds since the last one.

    `lost` counts those that were overwritten before they were read, `foreign` those that no draft
    model drafted (n-gram types show no probabilities), `unreadable` those of impossible values.
    """

    def __init__(self, ring: RingFile) -> None:
        self.lost = 0
        self.foreign = 0
        self.unreadable = 0
        self._ring = ring
        self._next = 0

    def take(self) -> list[LiveRound]:
        head = self._ring.status().head
        if head < self._next or head >= 1 << 62:
            self.unreadable += 1
            return []
        oldest = max(self._next, head - ENTRIES)
        self.lost += oldest - self._next
        rounds = []
        for index in range(oldest, head):
            entry = self._ring.entry(index)
            if entry is None:
                self.lost += 1
            elif RoundFlag.FOREIGN & int(entry["flags"][0]):
                self.foreign += 1
            elif (found := live_round(entry)) is None:
                self.unreadable += 1
            else:
                rounds.append(found)
        self._next = head
        return rounds


def live_round(entry: NDArray[np.void]) -> LiveRound | None:
    """One ROUND record as a round; None where its values cannot be."""
    record = entry[0]
    seen, drafted, accepted = (int(record[name]) for name in ("seen", "drafted", "accepted"))
    slot, busy, flags = (int(record[name]) for name in ("slot", "busy", "flags"))
    if not accepted <= drafted <= seen <= POSITIONS or slot >= SLOTS or not 1 <= busy <= SLOTS:
        return None
    tokens = record["token"][:seen]
    p, second, purity = (tuple(map(float, tokens[name])) for name in ("p", "second", "purity"))
    if not all(0.0 <= value <= 1.001 for value in (*p, *second, *purity)):
        return None
    cut = bool(flags & RoundFlag.CUT)
    return LiveRound(
        round=Round(
            p=tuple(min(value, 1.0) for value in p[:drafted]),
            accepted=accepted,
            draft_ms=float(record["draft_ns"]) / 1e6,
            verify_ms=float(record["verify_ns"]) / 1e6,
            cut_p=min(p[-1], 1.0) if cut and seen == drafted + 1 else None,
        ),
        slot=slot,
        busy=busy,
        depth=int(record["depth"]),
        began=float(record["began_ns"]) / 1e9,
        policy=int(record["policy"]),
        obeyed=bool(flags & RoundFlag.OBEYED),
        cut=cut,
        skipped=bool(flags & RoundFlag.SKIPPED),
        second=second,
        purity=purity,
    )
