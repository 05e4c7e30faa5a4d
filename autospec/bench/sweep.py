"""The best static triple, by a race over a grid: what a patient user would find by hand.

Successive halving (Jamieson and Talwalkar, 2016): every triple runs on a row of each cell, the
best third goes on, with twice the rows, until one is left or the rows are spent. A cell is a
workload at a load; each has a winner of its own. Loads and depths join after the first rung,
with the triples that survived it anywhere. `n_min` is tried on the winners: it throws drafts
away that are already paid, so it can only help a little, and only together with `p_min`.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from autospec.tuning.replay import Triple

KEEP = 3
"""One triple in this many goes on to the next rung."""

RUNGS = (1, 2, 4)
"""Rows that each rung adds."""

_N_MIN = (1, 2, 4)

Play = Callable[[Triple, str, int], Awaitable[float | None]]
"""Milliseconds a token of a triple in a cell on a row; None where there was no telling answer."""


@dataclass
class Race:
    """`times[cell][triple]` are milliseconds a token on rows 0, 1, … of the cell."""

    times: dict[str, dict[Triple, list[float | None]]] = field(default_factory=dict)
    complete: bool = True

    def winner(self, cell: str) -> Triple | None:
        """The best of those that ran the most rows of `cell`; None where none ran."""
        known = {
            triple: [ms for ms in rows if ms is not None]
            for triple, rows in self.times.get(cell, {}).items()
        }
        most = max((len(rows) for rows in known.values()), default=0)
        if most == 0:
            return None
        finalists = {triple: rows for triple, rows in known.items() if len(rows) == most}
        return min(finalists, key=lambda triple: statistics.fmean(finalists[triple]))


def grid(n_max: Sequence[int], p_min: Sequence[float]) -> list[Triple]:
    return [Triple(length, 0, p) for length in n_max for p in p_min]


def survivors(times: dict[Triple, list[float | None]], contenders: Sequence[Triple]) -> set[Triple]:
    """The best third of `contenders` by their mean over the rows that all of them answered."""
    rows = min((len(times.get(triple, ())) for triple in contenders), default=0)
    common = [row for row in range(rows) if all(times[one][row] is not None for one in contenders)]
    if not common:
        return set(contenders)

    def mean(triple: Triple) -> float:
        return statistics.fmean(times[triple][row] or 0.0 for row in common)

    return set(sorted(contenders, key=mean)[: -(-len(contenders) // KEEP)])


async def race(
    play: Play,
    triples: Sequence[Triple],
    first: Sequence[str],
    later: Sequence[str],
    *,
    seed: int,
    time_is_up: Callable[[], bool],
) -> Race:
    """Race `triples` in the cells `first`, and in `later` from the second rung on.

    Triples run in shuffled order, each through all of its cells before the next, since every
    change of a triple starts a server. Where `time_is_up`, what is known decides.
    """
    found = Race()
    order = random.Random(seed)  # noqa: S311 - shuffles, guards nothing
    contenders = {cell: set(triples) for cell in first}
    row = 0
    for rung, rows in enumerate(RUNGS):
        if rung == 1:
            anywhere = set().union(*contenders.values()) if contenders else set(triples)
            contenders |= {cell: set(anywhere) for cell in later}
        open_cells = {cell: some for cell, some in contenders.items() if len(some) > 1 or not row}
        if not open_cells:
            break
        if not await _rung(play, found, open_cells, row + rows, order, time_is_up):
            return found
        for cell, some in open_cells.items():
            contenders[cell] = survivors(found.times[cell], sorted(some))
        row += rows
    await _try_n_min(play, found, order, time_is_up)
    return found


async def _rung(
    play: Play,
    found: Race,
    contenders: dict[str, set[Triple]],
    rows: int,
    order: random.Random,
    time_is_up: Callable[[], bool],
) -> bool:
    """Let every contender run its cells up to row `rows`; whether there was time for all."""
    triples = sorted(set().union(*contenders.values()))
    order.shuffle(triples)
    for triple in triples:
        for cell in [cell for cell, some in contenders.items() if triple in some]:
            known = found.times.setdefault(cell, {}).setdefault(triple, [])
            while len(known) < rows:
                if time_is_up():
                    found.complete = False
                    return False
                known.append(await play(triple, cell, len(known)))
    return True


async def _try_n_min(
    play: Play, found: Race, order: random.Random, time_is_up: Callable[[], bool]
) -> None:
    trials: dict[str, set[Triple]] = {}
    rows = 0
    for cell, times in found.times.items():
        best = found.winner(cell)
        if best is None or best.p_min == 0:
            continue
        rows = max(rows, len(times[best]))
        trials[cell] = {best} | {best._replace(n_min=n) for n in _N_MIN if n < best.n_max}
    if trials:
        await _rung(play, found, trials, rows, order, time_is_up)
