"""Runs a benchmark: the sweep, some traffic for the tuned arms to learn from, then the cells.

Every cell gets its first rows before any gets more, so that a budget that ends early costs
precision and not an answer. Whatever was measured is in the journal at once: an interrupted
benchmark goes on where it was.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autospec.bench.arms import (
    ARMS,
    Arm,
    FixedArm,
    SteeredArm,
    Subject,
    average_cost_policy,
    default_arm,
    of_triple,
    plain_arm,
)
from autospec.bench.asking import ask
from autospec.bench.fleet import Fleet
from autospec.bench.journal import Journal, Record
from autospec.bench.results import narrow
from autospec.bench.sampling import Watcher, play_block
from autospec.bench.suite import Cell, Suite
from autospec.bench.sweeping import Swept, sweep_cells
from autospec.bench.tuned import TunedArm, why_not_live
from autospec.bench.workloads import MIXTURE, Request
from autospec.calibration.prompts import prompts
from autospec.calibration.run import Progress
from autospec.errors import ServeError

SEED = 17
_LEARNING_TOKENS = 64
_TRIES = 2
"""A row during which something else used the machine is asked again, once."""


@dataclass(frozen=True)
class Order:
    """What is to be measured. `requests` by workload, as `workloads.requests_of` gives them."""

    suite: Suite
    cells: tuple[Cell, ...]
    arms: tuple[str, ...]
    requests: Mapping[str, tuple[Request, ...]]


@dataclass(frozen=True)
class Measured:
    """`failed`: arms that took no part, or not to the end, and why. `finished` is False where
    the budget ended before every interval was narrow."""

    swept: Swept | None
    failed: Mapping[str, str]
    finished: bool
    crowded: bool
    seconds: float


async def run(
    subject: Subject,
    order: Order,
    journal: Journal,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> Measured:
    """Measure what `order` asks for. ServeError when plain decoding itself cannot be served."""
    with tempfile.TemporaryDirectory(prefix="autospec-") as folder:
        return await _Run(subject, order, journal, on_progress, Path(folder)).run()


class _Run:
    def __init__(
        self,
        subject: Subject,
        order: Order,
        journal: Journal,
        on_progress: Callable[[Progress], None],
        folder: Path,
    ) -> None:
        self._subject = subject
        self._order = order
        self._suite = order.suite
        self._journal = journal
        self._on_progress = on_progress
        self._folder = folder
        self._began = time.monotonic()
        spent = max((record["spent"] for record in journal.of("row")), default=0.0)
        self._spent_before = spent
        self._random = random.Random(f"{SEED} {len(journal.records)}")  # noqa: S311 - shuffles

    @property
    def _spent(self) -> float:
        return self._spent_before + time.monotonic() - self._began

    @property
    def _left(self) -> float:
        return self._suite.budget - self._spent

    def _say(self, what: str) -> None:
        share = min(1.0, self._spent / self._suite.budget)
        self._on_progress(Progress(what, share, max(0.0, self._left)))

    async def run(self) -> Measured:
        swept = await self._sweep() if "best_static" in self._order.arms else None
        arms, failed = self._arms(swept)
        fleet = Fleet(arms, self._folder)
        fleet.failed.update(failed)
        finished = False
        try:
            await self._warm(fleet)
            finished = await self._measure(fleet)
        finally:
            await fleet.close()
        return Measured(swept, dict(fleet.failed), finished, fleet.crowded, self._spent)

    async def _sweep(self) -> Swept:
        return await sweep_cells(
            self._subject.prepared,
            self._order.cells,
            self._order.requests,
            self._suite,
            journal=self._journal,
            folder=self._folder,
            seed=SEED,
            seconds=self._suite.sweep_share * self._suite.budget,
            on_step=self._say,
        )

    def _arms(self, swept: Swept | None) -> tuple[dict[str, Arm], dict[str, str]]:
        """The arms that can take part, and why the others cannot."""
        subject, prepared = self._subject, self._subject.prepared
        not_live = why_not_live(subject)
        arms: dict[str, Arm] = {}
        failed: dict[str, str] = {}
        for name in ARMS:
            if name not in self._order.arms:
                continue
            match name:
                case "plain":
                    arms[name] = plain_arm(prepared)
                case "default":
                    arms[name] = default_arm(prepared)
                case "best_static" if swept is not None and swept.winners:
                    arms[name] = _best_static(subject, swept)
                case "best_static":
                    failed[name] = "the budget ended before the sweep had run a single triple"
                case _ if name != "scalar" and not_live is not None:
                    failed[name] = f"no live policy: {not_live}"
                case "pr17034":
                    arms[name] = SteeredArm(
                        name, prepared, average_cost_policy(subject.calibration)
                    )
                case _:
                    arms[name] = TunedArm(name, subject, live=name == "live")
        return arms, failed

    async def _warm(self, fleet: Fleet) -> None:
        """Bring everything up, and let the tuned arms see traffic that is not compared."""
        first = self._order.cells[0].key
        for name in fleet.names:
            self._say(f"starting {name}")
            await fleet.get(name, first)
        _demand_plain(fleet)
        for name in fleet.names:
            arm = fleet.arms[name]
            deadline = time.monotonic() + self._suite.learning
            texts = prompts("learning") if isinstance(arm, TunedArm) else prompts("learning")[:1]
            for prompt in texts:
                if time.monotonic() > deadline:
                    break
                self._say(f"traffic before the comparison: {name}")
                server = await fleet.get(name, first)
                if server is None:
                    break
                async with fleet.alive(name):
                    await ask(name, server, prompt.text, _LEARNING_TOKENS)
        _demand_plain(fleet)

    async def _measure(self, fleet: Fleet) -> bool:
        """Pass over pass through the cells whose intervals are still wide; True when none is."""
        for _ in range(self._suite.passes):
            open_cells = [cell for cell in self._order.cells if not self._done(cell)]
            if not open_cells:
                return True
            for cell in open_cells:
                if not await self._one_pass(fleet, cell):
                    return False
        return all(self._done(cell) for cell in self._order.cells)

    def _done(self, cell: Cell) -> bool:
        rows = self._rows(cell)
        enough = len(rows) >= self._a_pass(cell)
        return enough and narrow(rows, cell, self._suite.width)

    def _rows(self, cell: Cell) -> list[Record]:
        return [record for record in self._journal.of("row") if record["cell"] == cell.key]

    def _a_pass(self, cell: Cell) -> int:
        """Rows of one pass; the mixture is asked for each kind of text in it."""
        kinds = len([kind for kind in self._order.requests if kind != MIXTURE])
        return max(self._suite.rows, kinds // cell.slots) if cell.mixed else self._suite.rows

    async def _one_pass(self, fleet: Fleet, cell: Cell) -> bool:
        """Whether there was time for a whole pass of rows."""
        first = len(self._rows(cell))
        numbers = range(first, first + self._a_pass(cell))
        size = len(numbers) if fleet.crowded else 1
        for start in range(0, len(numbers), size):
            if self._left <= 0:
                return False
            block = numbers[start : start + size]
            self._say(f"{cell.key}: row {block[0] + 1}")
            await self._block(fleet, cell, block)
        return True

    async def _block(self, fleet: Fleet, cell: Cell, numbers: Sequence[int]) -> None:
        rows = [(number, cell.requests(number, dict(self._order.requests))) for number in numbers]
        watcher = Watcher(lambda: fleet.pids)
        disturbed = None
        for _ in range(_TRIES):
            watcher.start()
            found = await play_block(fleet, cell, rows, self._suite.tokens, self._random)
            _demand_plain(fleet)
            disturbed = watcher.report().sentence
            if disturbed is None:
                break
        for number, samples in found.items():
            record = {
                "cell": cell.key,
                "row": number,
                "disturbed": disturbed,
                "samples": samples,
                "spent": self._spent,
            }
            self._journal.add("row", record)


def _demand_plain(fleet: Fleet) -> None:
    """Without plain decoding there is nothing to compare with."""
    if (reason := fleet.failed.get("plain")) is not None:
        raise ServeError(
            f"plain decoding cannot be served: {reason}",
            hint="see the last lines of llama-server; the same command goes on where it was",
        )


def _best_static(subject: Subject, swept: Swept) -> FixedArm:
    """The winner of each cell; where a cell has none, the mixture's or any other's."""
    usual = swept.winners.get(MIXTURE) or next(iter(swept.winners.values()))
    return FixedArm(
        "best_static",
        subject.prepared,
        lambda cell: of_triple(swept.winners.get(cell, usual)),
    )
