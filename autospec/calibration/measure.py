"""Running the benchmark within a budget and condensing its rows to step times."""

from __future__ import annotations

import asyncio
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autospec.calibration.grid import STEPS, Job
from autospec.engine import process as processes
from autospec.engine.bench import BenchRow, Combination, missing, parse_row
from autospec.engine.failures import explain_exit
from autospec.errors import CalibrationError, EngineOutputError
from autospec.tuning.cost import StepTime

STEADY = 0.03
"""Half the interquartile range over the median, at or under which a batch is settled."""


class _Settled(Exception):
    """Ends a run early; no error."""


@dataclass(frozen=True)
class JobResult:
    """Rows of one job without its warm-up row. `complete` is False where time ran out;
    `misfits` are combinations that the tool left out because its context was too small."""

    rows: tuple[BenchRow, ...]
    complete: bool
    misfits: tuple[Combination, ...] = ()


async def run_job(
    argv: Sequence[str],
    env: Mapping[str, str],
    job: Job,
    *,
    seconds: float,
    on_row: Callable[[BenchRow], None] = lambda _row: None,
    on_start: Callable[[int], None] = lambda _pid: None,
) -> JobResult:
    """Run `argv` (the benchmark, its model and placement flags) for `job`.

    Ends when the job is done, when all its batches are steady after two whole passes or more,
    or after `seconds`. CalibrationError when the tool fails, EngineOutputError when it prints
    a row that cannot be used.
    """
    rows: list[BenchRow] = []
    warm_up = job.depth == 0  # At depth, the prompt has warmed everything up.

    def take(line: str) -> None:
        nonlocal warm_up
        if (row := parse_row(line)) is None:
            return
        if row.depth != job.depth or row.steps != STEPS:
            raise EngineOutputError("llama-batched-bench measured another combination", line=line)
        if warm_up:
            warm_up = False
            return
        rows.append(row)
        on_row(row)
        if len(rows) % len(job.batches) == 0 and len(rows) >= 2 * len(job.batches) and steady(rows):
            raise _Settled

    arguments = [*argv, *job_arguments(job)]
    try:
        async with asyncio.timeout(seconds):
            finished = await processes.run(arguments, env, take, on_start=on_start)
    except (TimeoutError, _Settled) as end:
        return JobResult(tuple(rows), complete=isinstance(end, _Settled))
    if finished.code != 0:
        cause = explain_exit(finished.code, list(finished.tail))
        raise CalibrationError(
            f"llama-batched-bench failed: {cause.sentence}",
            hint="run it by hand to see more: " + " ".join(map(str, arguments)),
        )
    asked = [Combination(job.depth, parallel) for parallel in job.parallel]
    return JobResult(tuple(rows), complete=True, misfits=tuple(missing(asked, rows)))


def job_arguments(job: Job) -> list[str]:
    """The benchmark's own arguments for `job` (`-kvu`: without it, depth costs far too much)."""
    parallel = job.parallel if job.depth == 0 else job.parallel[1:]
    return [
        *("-c", str(job.context), "-npp", str(job.depth), "-ntg", str(STEPS)),
        *("-npl", ",".join(map(str, parallel)), "-kvu", "--output-format", "jsonl"),
        *(("-pps",) if job.shared else ()),
    ]


def relative_spread(times: Sequence[float]) -> float:
    """Half the interquartile range over the median; infinite for fewer than two times."""
    if len(times) < 2:
        return float("inf")
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / 2 / statistics.median(times)


def steady(rows: Sequence[BenchRow]) -> bool:
    """Whether every batch in `rows` varies so little that another pass would not help."""
    return all(relative_spread(times) <= STEADY for times in _times(rows).values())


def step_times(rows: Sequence[BenchRow]) -> tuple[StepTime, ...]:
    """Median and spread of the step time of each batch, in ms, in order of depth and batch."""
    steps = []
    for (depth, shared, parallel), times in sorted(_times(rows).items()):
        median = statistics.median(times)
        spread = relative_spread(times) * median if len(times) > 1 else STEADY * median
        batch, slots = (parallel, 1) if shared else (1, parallel)
        steps.append(StepTime(batch, depth, median, spread, len(times), slots, shared))
    return tuple(steps)


def _times(rows: Sequence[BenchRow]) -> dict[tuple[int, bool, int], list[float]]:
    times: dict[tuple[int, bool, int], list[float]] = defaultdict(list)
    for row in rows:
        times[row.depth, row.shared_prompt, row.parallel].append(row.step_ms)
    return times
