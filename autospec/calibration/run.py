"""A whole calibration: the target's costs, the draft's, at depth and under load, a rehearsal.

The most telling figures come first, so that a budget that ends early costs precision and not
the answer. What was left out is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from autospec.calibration import grid, store
from autospec.calibration.grid import Job
from autospec.calibration.measure import STEADY, JobResult, run_job, step_times
from autospec.calibration.rehearsal import Rehearsal, rehearse
from autospec.calibration.result import Calibration
from autospec.engine.arguments import bench_argv
from autospec.engine.bench import BenchRow
from autospec.engine.capabilities import DRAFT_SIMPLE
from autospec.engine.find import Engine
from autospec.engine.launch import Launch, Speculation
from autospec.errors import CalibrationError
from autospec.hardware.load import LoadSample, compare, sample
from autospec.tuning.cost import CostSurface, DraftCost, StepTime, round_cost

_OPTIMISTIC = 0.98
_FEWEST_ROWS = 3


@dataclass(frozen=True)
class Settings:
    """What the user may choose. `budget` in seconds; `depths` in tokens, None for automatic."""

    budget: float = 120.0
    max_draft: int = 16
    depths: tuple[int, ...] | None = None
    passes: int = 5
    rehearse: bool = True


@dataclass(frozen=True)
class Progress:
    """`what` is going on; `share` of it is done, `left` seconds remain at most (None: unknown)."""

    what: str
    share: float
    left: float | None = None


def key_of(engine: Engine, launch: Launch, settings: Settings, hardware: str, context: int) -> str:
    """The key under which this calibration is kept; see `store.key_of`."""
    arguments = bench_argv(engine, launch, which="target")
    if launch.has_draft:
        arguments += bench_argv(engine, launch, which="draft")
    wanted = [settings.max_draft, list(_depths(settings, launch, context)), settings.rehearse]
    return store.key_of(
        launch, hardware=hardware, engine=engine.identity, arguments=arguments, grid=wanted
    )


async def calibrate(
    engine: Engine,
    launch: Launch,
    settings: Settings,
    *,
    key: str,
    context: int,
    prompts: Sequence[str],
    env: Mapping[str, str],
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> Calibration:
    """Measure `launch` on `engine` within the budget and return what was found.

    `context` is the context of the server in tokens, `prompts` what the rehearsal asks.
    CalibrationError when not even the target's cost at depth 0 can be had.
    """
    run = _Run(engine, launch, settings, env, on_progress)
    await run.costs_at_depth_zero()
    await run.costs_at_depth(_depths(settings, launch, context)[1:])
    if launch.slots > 1:
        await run.costs_of_slots(context)
    if launch.has_draft and settings.rehearse:
        await run.rehearsal(prompts)
    return run.result(key)


def _depths(settings: Settings, launch: Launch, context: int) -> tuple[int, ...]:
    chosen = settings.depths or grid.default_depths(context // launch.slots)
    return tuple(sorted({0, *chosen}))


def _own_cpu_seconds() -> float:
    """Processor time of this process and of the programs it ran to their end."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@dataclass
class _Run:
    engine: Engine
    launch: Launch
    settings: Settings
    env: Mapping[str, str]
    on_progress: Callable[[Progress], None]
    began: float = field(default_factory=time.monotonic)
    before: LoadSample = field(default_factory=sample)
    own_before: float = field(default_factory=_own_cpu_seconds)
    rows: dict[str, list[BenchRow]] = field(default_factory=lambda: {"target": [], "draft": []})
    recorded: Rehearsal = field(default_factory=lambda: Rehearsal(()))
    skipped: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def left(self) -> float:
        return self.began + self.settings.budget - time.monotonic()

    @property
    def _reserve(self) -> float:
        """Seconds kept back for the rehearsal, which everything else must leave alone."""
        wanted = self.launch.has_draft and self.settings.rehearse
        return 0.25 * self.settings.budget if wanted else 0.0

    def _say(self, what: str) -> None:
        share = 1 - max(0.0, self.left) / self.settings.budget
        self.on_progress(Progress(what, share, max(0.0, self.left)))

    async def _job(self, job: Job, seconds: float) -> JobResult:
        what = f"{job.which}, depth {job.depth}"

        def on_row(row: BenchRow) -> None:
            self._say(f"{what}: {row.parallel} tokens in {row.step_ms:.3g} ms")

        self._say(what)
        result = await run_job(
            bench_argv(self.engine, self.launch, which=job.which),
            self.env,
            job,
            seconds=max(1.0, seconds),
            on_row=on_row,
        )
        self.rows[job.which].extend(result.rows)
        if result.misfits:
            sizes = ", ".join(str(misfit.parallel) for misfit in result.misfits)
            self.skipped.append(f"{what}: batches {sizes} did not fit the benchmark's context")
        return result

    async def costs_at_depth_zero(self) -> None:
        batches = grid.every_batch(self.settings.max_draft)
        usable = self.left - self._reserve
        result = await self._job(Job("target", 0, batches, self.settings.passes), 0.45 * usable)
        self._say_missing("target", batches, result)
        if not result.rows:
            raise CalibrationError(
                f"not one batch was measured in {0.45 * usable:.0f} s",
                hint="give it more time with --budget",
            )
        if self.launch.has_draft:
            job = Job("draft", 0, batches, self.settings.passes)
            result = await self._job(job, 0.15 * (self.left - self._reserve))
            self._say_missing("draft", batches, result)

    def _say_missing(self, which: str, batches: Sequence[int], result: JobResult) -> None:
        missed = sorted(set(batches) - {row.parallel for row in result.rows})
        if missed:
            self.skipped.append(
                f"{which}, depth 0: the budget ended before batches of "
                f"{', '.join(map(str, missed))} tokens"
            )

    async def costs_at_depth(self, depths: Sequence[int]) -> None:
        """As many rows at each of `depths` as the time allows, shallow first."""
        # A prompt's token costs no more than a token of the widest batch seen so far.
        widest = max(self.rows["target"], key=lambda row: row.parallel)
        second_a_token = widest.step_ms / 1000 / widest.parallel
        reachable = self._reachable(depths, second_a_token)
        largest = self._longest_useful_draft() + 1
        for index, depth in enumerate(reachable):
            usable = (self.left - self._reserve) / (len(reachable) - index)
            job = Job("target", depth, grid.refining_batches(largest), passes=1)
            result = await self._job(job, usable * (0.8 if self.launch.has_draft else 1.0))
            if len(result.rows) < len(job.batches):
                self.skipped.append(
                    f"target, depth {depth}: the budget ended after {len(result.rows)} of "
                    f"{len(job.batches)} batches; the others are interpolated"
                )
            if self.launch.has_draft:
                job = Job("draft", depth, grid.refining_batches(largest), passes=1)
                await self._job(job, usable * 0.2)

    def _reachable(self, depths: Sequence[int], second_a_token: float) -> list[int]:
        """Those of `depths` at which the budget allows a few rows; the others are said."""
        seconds, reachable = self.left - self._reserve, []
        for depth in depths:
            rows = depth * second_a_token * _FEWEST_ROWS
            if rows <= seconds:
                reachable.append(depth)
                seconds -= rows
            else:
                self.skipped.append(
                    f"depth {depth}: a row takes up to {depth * second_a_token:.0f} s, too long "
                    f"for this budget; costs there are extrapolated"
                )
        return reachable

    async def costs_of_slots(self, context: int) -> None:
        """Total batches of several slots, and what separate contexts add."""
        totals = grid.slot_batches(self.settings.max_draft, self.launch.slots)
        usable = self.left - self._reserve
        if totals:
            result = await self._job(Job("target", 0, totals, 3), 0.6 * usable)
            self._say_missing("target", totals, result)
        depth = context // self.launch.slots // 4
        counts = tuple(sorted({2, self.launch.slots}))
        usable = self.left - self._reserve
        result = await self._job(Job("target", depth, counts, 2, shared=False), usable)
        if not result.rows:
            self.skipped.append(f"busy slots at depth {depth}: the budget ended")

    async def rehearsal(self, prompts: Sequence[str]) -> None:
        self._say("rehearsal: loading")
        length = self._longest_useful_draft()
        self.recorded = await rehearse(
            self.engine,
            self.launch,
            Speculation((DRAFT_SIMPLE,), n_max=length, n_min=0, p_min=0.0),
            prompts,
            self.env,
            seconds=max(1.0, self.left - 1.0),
            on_round=lambda count: self._say(f"rehearsal: {count} rounds"),
        )
        if self.recorded.remark:
            self.remarks.append(self.recorded.remark)

    def _longest_useful_draft(self) -> int:
        """Longer drafts would not pay even if 98 % of the tokens were accepted."""
        draft = step_times(self.rows["draft"])
        kind: Literal["autoregressive", "none"] = "autoregressive" if draft else "none"
        surface = CostSurface.from_steps(draft) if draft else None
        cost = round_cost(
            CostSurface.from_steps(step_times(self.rows["target"])),
            DraftCost(kind, surface),
            n_max=self.settings.max_draft,
        )
        tokens = [
            sum(_OPTIMISTIC**i for i in range(length + 1)) for length in range(cost.n_max + 1)
        ]
        rates = [
            tokens[length] / (cost.draft_ms[length] + cost.verify_ms[length])
            for length in range(1, cost.n_max + 1)
        ]
        return max(range(len(rates)), key=rates.__getitem__) + 1

    def result(self, key: str) -> Calibration:
        target, disturbed = undisturbed(step_times(self.rows["target"]))
        report = compare(self.before, sample(), _own_cpu_seconds() - self.own_before)
        doubts = [doubt for doubt in (report.sentence, disturbed, _loose(target)) if doubt]
        self.remarks += doubts
        return Calibration(
            key=key,
            model=self.launch.name,
            made_at=time.time(),
            seconds=time.monotonic() - self.began,
            engine_version=self.engine.version,
            max_draft=self.settings.max_draft,
            target=target,
            draft=step_times(self.rows["draft"]),
            rounds=self.recorded.rounds,
            rehearsal_depth=self.recorded.depth,
            skipped=tuple(self.skipped),
            remarks=tuple(self.remarks),
            unsure=bool(doubts),
        )


def undisturbed(steps: Sequence[StepTime]) -> tuple[tuple[StepTime, ...], str | None]:
    """`steps` with a single token at depth 0 no dearer than any wider batch, and what was wrong.

    Every batch reads all the weights that one token reads; a plain step that measures dearer
    than a wider one was disturbed, and would make speculation look better than it is.
    """
    dense = [step for step in steps if step.depth == 0 and step.slots == 1]
    single = next((step for step in dense if step.batch == 1), None)
    cheapest = min(dense, key=lambda step: step.ms)
    if single is None or single.ms <= cheapest.ms + single.spread_ms + cheapest.spread_ms:
        return tuple(steps), None
    capped = replace(single, ms=cheapest.ms, spread_ms=single.ms - cheapest.ms)
    sentence = (
        f"one token measured {single.ms:.3g} ms, a batch of {cheapest.batch} only "
        f"{cheapest.ms:.3g} ms: the measurement was disturbed"
    )
    return tuple(capped if step is single else step for step in steps), sentence


def _loose(steps: Sequence[StepTime]) -> str | None:
    """A sentence when the median batch varies by more than twice what counts as steady."""
    spreads = sorted(step.spread_ms / step.ms for step in steps)
    middle = spreads[len(spreads) // 2]
    if middle <= 2 * STEADY:
        return None
    return f"step times vary by ±{middle:.0%} between repeats: something else uses the machine"
