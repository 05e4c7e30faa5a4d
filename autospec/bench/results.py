"""From the journal's rows to figures: pure functions over plain records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from autospec.bench.journal import Record
from autospec.bench.stats import (
    Interval,
    mean_ratio,
    overall_rate,
    overall_ratio,
    typical_rate,
    typical_ratio,
)
from autospec.bench.suite import Cell

_SEED = 29
_ENOUGH_QUIET = 3
"""Disturbed rows are left out where at least so many quiet ones remain."""


def usable(rows: Sequence[Record]) -> list[Record]:
    """The quiet rows; all of them where there are too few."""
    quiet = [row for row in rows if row["disturbed"] is None]
    return quiet if len(quiet) >= _ENOUGH_QUIET else list(rows)


def times(rows: Sequence[Record], *arms: str) -> list[list[float]]:
    """Milliseconds a token of each of `arms`, on the rows that all of them answered tellingly."""
    told = [row["samples"] for row in usable(rows) if all(_telling(row, arm) for arm in arms)]
    return [[samples[arm]["ms"] for samples in told] for arm in arms]


def speed(rows: Sequence[Record], cell: Cell, arm: str) -> Interval | None:
    """Tokens/s: of the median row, over all rows for the mixture. None without a row."""
    (ms,) = times(rows, arm)
    if not ms:
        return None
    return (overall_rate if cell.mixed else typical_rate)(ms, seed=_SEED)


def ratio(rows: Sequence[Record], cell: Cell, arm: str, against: str) -> Interval | None:
    """How much faster `arm` is than `against` on the rows that both answered."""
    one, other = times(rows, arm, against)
    if not one:
        return None
    return (overall_ratio if cell.mixed else typical_ratio)(one, other, seed=_SEED)


def ratio_of_all(rows: Sequence[Record], arm: str, against: str) -> Interval | None:
    """How much faster `arm` is than `against` over the rows of all cells."""
    one, other = times(rows, arm, against)
    return mean_ratio(one, other, seed=_SEED) if one else None


def narrow(rows: Sequence[Record], cell: Cell, width: float) -> bool:
    """Whether every arm's ratio to plain is known to ±`width` (relative)."""
    arms = {arm for row in rows for arm in row["samples"]}
    for arm in arms - {"plain"}:
        found = ratio(rows, cell, arm, "plain")
        if found is not None and (found.width is None or found.width > width):
            return False
    return True


def diverged(rows: Sequence[Record], arm: str) -> tuple[int, int]:
    """Answers that differ from plain's, and answers compared."""
    differ = compared = 0
    for row in rows:
        one, plain = row["samples"].get(arm), row["samples"].get("plain")
        if one and plain:
            pairs = list(zip(one["answers"], plain["answers"], strict=False))
            differ += sum(a != b for a, b in pairs)
            compared += len(pairs)
    return differ, compared


def acceptance(rows: Sequence[Record], arm: str) -> float | None:
    """Share of the drafted tokens that were accepted; None where nothing was drafted."""
    samples = [row["samples"][arm] for row in usable(rows) if arm in row["samples"]]
    drafted = sum(sample["drafted"] for sample in samples)
    return sum(sample["accepted"] for sample in samples) / drafted if drafted else None


def depth_of(rows: Sequence[Record], cell: Cell) -> float | None:
    """Median tokens of context at the start of an answer."""
    found = [
        sample["prompt_tokens"] / cell.slots for row in rows for sample in row["samples"].values()
    ]
    return statistics.median(found) if found else None


def rounds_of(rows: Sequence[Record], arm: str) -> list[dict[str, Any]]:
    """The rounds that the live library told of while `arm` was measured, in order of time."""
    return [
        one
        for row in rows
        if arm in row["samples"]
        for one in row["samples"][arm]["extra"].get("rounds", ())
    ]


def _telling(row: Record, arm: str) -> bool:
    sample = row["samples"].get(arm)
    if sample is None or not sample["ms"] > 0:
        return False
    return bool(sample["tokens"] >= 8 * len(sample["answers"]))
