"""What is seen of speculative rounds, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """One draft and its verification.

    `p[i]` is the probability that the draft reported for its token i (softmax over its top
    candidates); `accepted` counts the leading tokens that the target accepted. Times in ms,
    None where not observed: `draft_ms` all drafting, `verify_ms` the target's batch and
    whatever the draft does with it. `cut_p` is what the draft reported for the token at which a
    stopping rule ended the draft, and which was therefore not verified; None where no rule did,
    or none is known.
    """

    p: tuple[float, ...]
    accepted: int
    draft_ms: float | None = None
    verify_ms: float | None = None
    cut_p: float | None = None

    @property
    def drafted(self) -> int:
        return len(self.p)


@dataclass(frozen=True)
class Counters:
    """Totals as the engine counts them over some span (differences of `/metrics` counters).

    `per_position[i]` is how often token i of a draft was accepted; a draft shorter than i
    counts as a miss there. `drafts` leaves out rounds with an empty draft. `predicted` is the
    number of tokens generated and `predicted_seconds` the time that took. `tells_drafts`: false
    for builds that count tokens alone; nothing is known of drafts then, and they are 0 here.
    """

    drafts: int
    drafted: int
    accepted: int
    per_position: tuple[int, ...]
    predicted: int = 0
    predicted_seconds: float = 0.0
    tells_drafts: bool = True
