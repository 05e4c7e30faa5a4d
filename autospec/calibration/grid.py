"""Which batches to measure, at which depths, in which order.

At depth 0 every batch counts, because kernels switch at single sizes and the prompt costs
nothing there. At depth the benchmark evaluates the prompt again for every row, so as many
batches are measured as the time allows, in an order that refines: weights cost the same at
every depth, and what attention adds is interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

STEPS = 4
"""Steps a row: short rows repeated in turn see a disturbance better than long ones."""

_DENSE_TO = 16
_MARGIN = 256
"""Tokens of context that the steps of a row need beyond its prompt, and then some."""


@dataclass(frozen=True)
class Job:
    """One run of the benchmark: a warm-up row, then `batches` in turn, `passes` times.

    `shared` rows read one prompt of `depth` tokens in all sequences, as a verified batch does;
    otherwise each sequence has its own, as busy slots do.
    """

    which: Literal["target", "draft"]
    depth: int
    batches: tuple[int, ...]
    passes: int
    shared: bool = True

    @property
    def parallel(self) -> tuple[int, ...]:
        return (self.batches[0], *self.batches * self.passes)

    @property
    def context(self) -> int:
        """Tokens of context that the largest row needs, rounded up to 256."""
        widest = max(self.batches)
        prompt = self.depth if self.shared else self.depth * widest
        return -(-(prompt + widest * (STEPS + 1) + 1) // 256) * 256


def every_batch(max_draft: int) -> tuple[int, ...]:
    return tuple(range(1, max_draft + 2))


def refining_batches(largest: int) -> tuple[int, ...]:
    """1 and `largest`, then every batch between, each halving the widest gap that is left.

    A run that is cut short anywhere has spread what it measured evenly.
    """
    order = [1, largest] if largest > 1 else [1]
    gaps = [(1, largest)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle in (low, high):
            continue
        order.append(middle)
        gaps += [(low, middle), (middle, high)]
    return tuple(order)


def slot_batches(max_draft: int, slots: int) -> tuple[int, ...]:
    """Total batches of several busy slots beyond one slot's: dense to 16, then ever sparser."""
    largest = slots * (max_draft + 1)
    totals = [total for total in range(max_draft + 2, _DENSE_TO + 1) if total <= largest]
    total = max(max_draft + 1, _DENSE_TO)
    while total < largest:
        total = min(largest, max(total + 1, round(total * 1.5)))
        totals.append(total)
    return tuple(totals)


def default_depths(context: int) -> tuple[int, ...]:
    """Depth 0, a quarter of a slot's context, and close to all of it."""
    deepest = max(0, context - _MARGIN)
    return tuple(sorted({0, min(context // 4, deepest), deepest}))
