"""Draft sources besides the draft model: n-gram types, alone and before the draft model. Pure.

They draft from what the text has said already, at next to no price. Nothing foretells how often a
user's text repeats itself, so that a source is tried: at a moment without requests, for `TRIAL`
rounds, and given up earlier where it is slower than plain decoding. What it measured there stands
against the rate of what was in force before. A first trial comes after `EVERY` rounds, and each
one that brought nothing doubles the wait: of the rounds of a long life, less than `SHARE` are
spent on trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from autospec.daemon.retuning.gate import WITHIN, Gate
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.setting import Basis
from autospec.engine.capabilities import DRAFT_SIMPLE, Capabilities
from autospec.engine.launch import Speculation

NGRAM = "ngram-mod"
CHAIN = f"{NGRAM},{DRAFT_SIMPLE}"

TRIAL = WITHIN
EVERY = 10_000
SHARE = TRIAL / EVERY
_MOST = 64 * EVERY

_REPEATED = 0.9
"""Chance that one more token of a text that repeats itself is accepted, by which the length of
n-gram drafts is chosen; how often it does is left to the trial."""


@dataclass(frozen=True)
class Tried:
    """What a source measured over plain decoding, and the standard error of that."""

    over_plain: float
    spread: float
    rounds: int


@dataclass(frozen=True)
class Sources:
    """`names` can be tried. `served` rounds have been verified since the last trial, and the next
    one comes after `wait`."""

    names: tuple[str, ...] = ()
    tried: Mapping[str, Tried] = field(default_factory=lambda: MappingProxyType({}))
    served: int = 0
    wait: int = EVERY

    def after(self, rounds: int) -> Sources:
        """With so many rounds more."""
        return replace(self, served=self.served + rounds)

    def forgotten(self) -> Sources:
        """Without what was measured: the text has changed."""
        return replace(self, tried=MappingProxyType({}))

    @property
    def due(self) -> str | None:
        """What shall be tried now: what never was, then what did best."""
        if self.served < self.wait or not self.names:
            return None
        best = {name: one.over_plain for name, one in self.tried.items()}
        return max(self.names, key=lambda name: best.get(name, math.inf))

    def judged(self, name: str, gate: Gate, *, won: bool) -> Sources:
        """With the outcome of a trial. ValueError without a measurement."""
        if gate.ratio is None:
            raise ValueError("a trial measures something")
        spread = gate.spread if math.isfinite(gate.spread) else gate.ratio
        tried = {**self.tried, name: Tried(gate.ratio, spread, gate.rounds)}
        rest = all(one in tried for one in self.names)
        wait = self.wait if won or not rest else min(2 * self.wait, _MOST)
        return replace(self, tried=MappingProxyType(tried), served=0, wait=wait)

    def to_json(self) -> dict[str, Any]:
        return {
            "tried": {
                name: [one.over_plain, one.spread, one.rounds] for name, one in self.tried.items()
            },
            "served": self.served,
            "wait": self.wait,
        }

    def with_json(self, fields: Mapping[str, Any]) -> Sources:
        """`self` with what `to_json` wrote down. ValueError, TypeError or KeyError for junk."""
        tried = {}
        for name, (over_plain, spread, rounds) in dict(fields["tried"]).items():
            figures = (float(over_plain), float(spread), int(rounds))
            if not all(math.isfinite(one) and one >= 0 for one in figures):
                raise ValueError("not a trial")
            if name in self.names:
                tried[name] = Tried(*figures)
        served, wait = int(fields["served"]), int(fields["wait"])
        if served < 0 or not EVERY <= wait <= _MOST:
            raise ValueError("not a wait")
        return replace(self, tried=MappingProxyType(tried), served=served, wait=wait)


def sources_of(able: Capabilities | None, *, drafted: bool) -> tuple[str, ...]:
    """What this build could try, with or without a draft model."""
    if able is None or NGRAM not in able.spec_types:
        return ()
    return (NGRAM, CHAIN) if drafted and DRAFT_SIMPLE in able.spec_types else (NGRAM,)


def source_of(speculation: Speculation) -> str | None:
    """The name of a source that was tried; None for plain decoding and the draft model alone."""
    if not speculation.on or speculation.types == (DRAFT_SIMPLE,):
        return None
    return ",".join(speculation.types)


def speculation_of(
    name: str, knowledge: Knowledge, basis: Basis, draft: Speculation
) -> Speculation:
    """How `name` is launched for about `basis`; `draft` are the numbers of the draft model."""
    types = tuple(name.split(","))
    if DRAFT_SIMPLE in types:
        return replace(draft, types=types)
    return Speculation(types, length(knowledge, basis))


def length(knowledge: Knowledge, basis: Basis) -> int:
    """The longest n-gram draft that pays where the text repeats itself: max N_k / T(k + 1)."""
    target, longest = knowledge.costs.live.target, knowledge.longest
    rates = [
        sum(_REPEATED**i for i in range(k + 1)) / target.step(k + 1, basis.depth, basis.busy).value
        for k in range(longest + 1)
    ]
    return max(1, int(np.argmax(rates)))


def in_words(name: str, tried: Tried, others: Sequence[tuple[str, float]]) -> str:
    """What a trial found; `others` are names and rates over plain decoding."""
    beside = ", ".join(f"{other} {ratio:.2f}x" for other, ratio in others)
    return (
        f"{name} on this traffic: {tried.over_plain:.2f}x of plain decoding "
        f"(± {tried.spread:.2f}, {tried.rounds} rounds){f'; {beside}' if beside else ''}"
    )
