"""Speculative rounds read from a server's own log at debug verbosity (`-lv 5`).

At that level build 11434 names, for each drafted token, the candidates with their probability,
and for each round how many tokens were drafted and accepted. One slot at a time: rounds of
several slots would be told apart by `id`, but their times would not be their own.

    get_n_draft … max possible draft      drafting starts
    draft candidate 0, pos i: … ( p) …    token i of the draft, its probability
    generate_draft: … #draft=k            drafting ends
    add accepted tokens: ids.size=a+1     the round ends: a tokens accepted, one of the target's

The lines also carry the text of the tokens, so this is for prompts of ours only, never for a
user's traffic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from autospec.tuning.observations import Round

_CLOCK = re.compile(r"([0-9]{1,9})\.([0-9]{2})\.([0-9]{3})\.([0-9]{3}) ")
_START = re.compile(r"max possible draft: [0-9]")
_CANDIDATE = re.compile(
    r"draft candidate\s+([0-9]{1,9}), pos\s+([0-9]{1,9}):\s*-?[0-9]+ "
    r"\(\s*([0-9]{1,9}(?:\.[0-9]{1,20})?)\)"
)
_DRAFTED = re.compile(r"generate_draft:.*#draft=([0-9]{1,9})\b")
_VERIFIED = re.compile(r"add accepted tokens: .*ids\.size=([0-9]{1,9}), n_draft=([0-9]{1,9})\b")
_MOST = 4096


def clock_ms(line: str) -> float | None:
    """The time stamp at the head of a log line (minutes.seconds.ms.µs since start), in ms."""
    if (match := _CLOCK.match(line)) is None:
        return None
    minutes, seconds, millis, micros = map(int, match.groups())
    return 60_000.0 * minutes + 1000.0 * seconds + millis + micros / 1000


@dataclass
class RoundReader:
    """Feed it lines with `take`; whole rounds gather in `rounds`.

    A round with anything missing (a lost line, a probability outside [0, 1], counts that do
    not agree) is dropped and counted in `dropped`. A draft cut short by the end of its
    request is simply a short round.
    """

    rounds: list[Round] = field(default_factory=list)
    dropped: int = 0
    _began: float | None = None
    _drafted_at: float | None = None
    _p: list[float] = field(default_factory=list)

    def take(self, line: str) -> None:
        if match := _CANDIDATE.search(line):
            self._candidate(int(match[1]), int(match[2]), float(match[3]))
        elif _START.search(line):
            self._p, self._began, self._drafted_at = [], clock_ms(line), None
        elif match := _DRAFTED.search(line):
            self._drafted_at = clock_ms(line)
            drafted = int(match[1])
            # Older engines draft on to their n_max and keep what the request has room for.
            self._p = self._p[:drafted] if drafted <= len(self._p) else []
        elif match := _VERIFIED.search(line):
            self._finish(int(match[1]) - 1, int(match[2]), clock_ms(line))

    def _candidate(self, rank: int, position: int, p: float) -> None:
        if rank == 0 and position == len(self._p) < _MOST and 0.0 <= p <= 1.0:
            self._p.append(p)

    def _finish(self, accepted: int, drafted: int, now: float | None) -> None:
        if drafted == len(self._p) and 0 <= accepted <= drafted and drafted > 0:
            drafting = verifying = None
            if self._began is not None and self._drafted_at is not None and now is not None:
                drafting = self._drafted_at - self._began
                verifying = now - self._drafted_at
            if drafting is None or verifying is None or min(drafting, verifying) < 0:
                drafting = verifying = None
            self.rounds.append(Round(tuple(self._p), accepted, drafting, verifying))
        else:
            self.dropped += 1
        self._p, self._began, self._drafted_at = [], None, None
