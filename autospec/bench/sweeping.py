"""Runs the race for the best static triple on real servers, and keeps what it cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from autospec.bench.arms import FixedArm, of_triple
from autospec.bench.journal import Journal
from autospec.bench.sampling import measure, sample_of
from autospec.bench.suite import Cell, Suite
from autospec.bench.sweep import RUNGS, Race, grid, race
from autospec.bench.workloads import MIXTURE, Request
from autospec.calibration.prepare import Prepared
from autospec.errors import AutospecError
from autospec.tuning.replay import Triple

_N_MIN_TRIED = 4
"""Values of n_min that an exhaustive sweep would try with every other combination."""


@dataclass(frozen=True)
class Swept:
    """Winners by cell, and the price: seconds (starts of servers included) and tokens written.

    `exhaustive_seconds` is what every triple with every `n_min` would have taken on the rows of
    the last rung, reckoned from the mean of what was run. `complete`: no budget ended the race.
    """

    winners: Mapping[str, Triple]
    seconds: float
    tokens: int
    triples: int
    exhaustive_seconds: float
    complete: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "winners": {cell: triple._asdict() for cell, triple in self.winners.items()},
            "seconds": self.seconds,
            "tokens": self.tokens,
            "triples": self.triples,
            "exhaustive_seconds": self.exhaustive_seconds,
            "complete": self.complete,
        }


async def sweep_cells(
    prepared: Prepared,
    cells: Sequence[Cell],
    requests: Mapping[str, tuple[Request, ...]],
    suite: Suite,
    *,
    journal: Journal,
    folder: Path,
    seed: int,
    seconds: float,
    on_step: Callable[[str], None],
) -> Swept:
    """Race the suite's grid in every cell for at most `seconds`; what the journal knows is not
    run again."""
    sweeper = _Sweeper(prepared, cells, requests, suite, journal, seconds, on_step)
    triples = grid(suite.n_max, suite.p_min)
    await sweeper.arm.start(folder / "sweep.sock")
    try:
        found = await race(
            sweeper.play,
            triples,
            [cell.key for cell in cells if cell.slots == 1 and not cell.depth],
            [cell.key for cell in cells if cell.slots > 1 or cell.depth],
            seed=seed,
            time_is_up=sweeper.time_is_up,
        )
    finally:
        await sweeper.arm.stop()
    return swept(found, cells, journal, len(triples))


def swept(found: Race, cells: Sequence[Cell], journal: Journal, triples: int) -> Swept:
    records = journal.of("sweep")
    spent = sum(record["seconds"] for record in records)
    each = spent / len(records) if records else 0.0
    every = triples * (1 + _N_MIN_TRIED) * sum(RUNGS) * max(1, len(cells))
    winners = {cell.key: found.winner(cell.key) for cell in cells}
    return Swept(
        winners={cell: triple for cell, triple in winners.items() if triple is not None},
        seconds=spent,
        tokens=sum(record["tokens"] for record in records),
        triples=len({tuple(record["triple"]) for record in records}),
        exhaustive_seconds=each * every,
        complete=found.complete,
    )


class _Sweeper:
    def __init__(
        self,
        prepared: Prepared,
        cells: Sequence[Cell],
        requests: Mapping[str, tuple[Request, ...]],
        suite: Suite,
        journal: Journal,
        seconds: float,
        on_step: Callable[[str], None],
    ) -> None:
        self._cells = {cell.key: cell for cell in cells}
        self._requests = requests
        self._suite = suite
        self._journal = journal
        self._on_step = on_step
        self._wanted = Triple(1, 0, 0.0)
        self._known: dict[tuple[Triple, str, int], float | None] = {
            (Triple(*record["triple"]), record["cell"], record["row"]): record["ms"]
            for record in journal.of("sweep")
        }
        already: float = sum(record["seconds"] for record in journal.of("sweep"))
        self._deadline = time.monotonic() + max(0.0, seconds - already)
        self.arm = FixedArm("sweep", prepared, lambda _cell: of_triple(self._wanted))

    def time_is_up(self) -> bool:
        return time.monotonic() > self._deadline

    async def play(self, triple: Triple, key: str, row: int) -> float | None:
        """Milliseconds a token; for the mixture the mean over all kinds of text, which are
        what it consists of."""
        cell = self._cells.get(key, Cell(key))
        if cell.mixed and cell.slots == 1:
            kinds = [kind for kind in self._requests if kind != MIXTURE]
            parts = [await self._once(triple, Cell(kind), row) for kind in kinds]
            known = [ms for ms in parts if ms is not None]
            return statistics.fmean(known) if len(known) == len(parts) else None
        return await self._once(triple, cell, row)

    async def _once(self, triple: Triple, cell: Cell, row: int) -> float | None:
        asked = (triple, cell.key, row)
        if asked not in self._known:
            self._known[asked] = await self._run(triple, cell, row)
        return self._known[asked]

    async def _run(self, triple: Triple, cell: Cell, row: int) -> float | None:
        self._on_step(
            f"sweep: n_max {triple.n_max}, n_min {triple.n_min}, p_min {triple.p_min:g}, {cell.key}"
        )
        self._wanted = triple
        began = time.monotonic()
        ms, tokens = None, 0
        try:
            server = await self.arm.ready(cell.key)
            requests = cell.requests(row, dict(self._requests))
            seconds, answers = await measure("sweep", server, requests, self._suite.sweep_tokens)
            sample = sample_of(seconds, answers, {})
            ms, tokens = (sample.ms if sample.telling else None), sample.tokens
        except* (AutospecError, httpx.HTTPError):
            # A triple that the engine cannot run is not the best one.
            await self.arm.stop()
        self._journal.add(
            "sweep",
            {
                "triple": list(triple),
                "cell": cell.key,
                "row": row,
                "ms": ms,
                "tokens": tokens,
                "seconds": time.monotonic() - began,
            },
        )
        return ms
