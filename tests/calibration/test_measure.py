from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from autospec.calibration.grid import STEPS, Job
from autospec.calibration.measure import (
    JobResult,
    job_arguments,
    relative_spread,
    run_job,
    step_times,
)
from autospec.engine.bench import BenchRow, Combination
from autospec.errors import CalibrationError, EngineOutputError

if TYPE_CHECKING:
    from conftest import FakeEngine

JOB = Job("target", 0, (1, 2, 3, 4), passes=3)


def measure(fake: FakeEngine, job: Job = JOB, seconds: float = 60.0) -> JobResult:
    argv = [str(fake.bench), "-m", "model.gguf"]
    return asyncio.run(run_job(argv, dict(os.environ), job, seconds=seconds))


def test_the_warm_up_row_is_dropped_and_every_batch_is_measured(fake_engine: FakeEngine) -> None:
    fake_engine.script_bench(step_ms=[40, 5], warm_up=50)
    result = measure(fake_engine)
    steps = step_times(result.rows)
    assert [step.batch for step in steps] == [1, 2, 3, 4]
    assert [round(step.ms) for step in steps] == [45, 50, 55, 60]
    assert result.complete


def test_a_steady_machine_is_measured_twice_and_not_more(fake_engine: FakeEngine) -> None:
    fake_engine.script_bench(spread=0.0)
    assert len(measure(fake_engine).rows) == 2 * len(JOB.batches)


def test_a_noisy_machine_is_measured_as_often_as_asked(fake_engine: FakeEngine) -> None:
    fake_engine.script_bench(spread=0.4)
    result = measure(fake_engine)
    assert len(result.rows) == JOB.passes * len(JOB.batches)
    assert (
        max(
            relative_spread([r.step_ms for r in result.rows if r.parallel == b])
            for b in JOB.batches
        )
        > 0.03
    )


def test_a_jag_stays_a_jag(fake_engine: FakeEngine) -> None:
    fake_engine.script_bench(step_ms=[40, 5], jag={"3": 0.5})
    times = {step.batch: step.ms for step in step_times(measure(fake_engine).rows)}
    assert times[3] < times[2] < times[4]


def test_time_that_ends_keeps_what_was_measured(fake_engine: FakeEngine) -> None:
    fake_engine.script_bench(row_seconds=0.4, spread=0.5)
    result = measure(fake_engine, seconds=3.0)
    assert 0 < len(result.rows) < JOB.passes * len(JOB.batches)
    assert not result.complete


def test_combinations_that_do_not_fit_are_named(fake_engine: FakeEngine) -> None:
    class Cramped(Job):
        @property
        def context(self) -> int:
            return 256

    job = Cramped("target", 200, (1, 4, 64), passes=1)
    result = measure(fake_engine, job)
    assert result.misfits == (Combination(200, 64),)
    assert {row.parallel for row in result.rows} == {1, 4}


def test_a_row_cut_in_half_is_refused_with_the_line(fake_engine: FakeEngine) -> None:
    fake_engine.script_bench(half_line=3)
    with pytest.raises(EngineOutputError, match="unreadable"):
        measure(fake_engine)


@pytest.mark.parametrize(("code", "words"), [(1, "exit code 1"), (-4, "SIGILL"), (-9, "SIGKILL")])
def test_a_tool_that_dies_is_an_error_with_its_cause(
    fake_engine: FakeEngine, code: int, words: str
) -> None:
    fake_engine.script_bench(exit={"after": 2, "code": code})
    with pytest.raises(CalibrationError, match=words):
        measure(fake_engine)


def test_depth_is_measured_unified_and_without_a_warm_up_row() -> None:
    arguments = job_arguments(Job("target", 512, (1, 8), passes=1))
    assert arguments[arguments.index("-npl") + 1] == "1,8"
    assert {"-kvu", "-pps"} <= set(arguments)


def test_busy_slots_have_contexts_of_their_own() -> None:
    job = Job("target", 512, (2, 4), passes=1, shared=False)
    arguments = job_arguments(job)
    assert "-pps" not in arguments
    assert int(arguments[arguments.index("-c") + 1]) >= 4 * 512
    (step,) = step_times([BenchRow(512, STEPS, 4, shared_prompt=False, seconds=0.4)])
    assert (step.batch, step.slots) == (1, 4)


def test_a_single_measurement_has_a_spread_all_the_same() -> None:
    (step,) = step_times([BenchRow(0, STEPS, 2, shared_prompt=True, seconds=0.4)])
    assert step.spread_ms > 0
