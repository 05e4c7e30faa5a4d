"""Whole calibrations: with the fake benchmark for faults, and with the real one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autospec.calibration.obtain import obtain, stored
from autospec.calibration.prepare import Prepared, prepare
from autospec.calibration.result import Calibration
from autospec.calibration.run import Progress, Settings, undisturbed
from autospec.engine.find import Engine, find_engine
from autospec.engine.launch import Launch
from autospec.errors import CalibrationError, ModelError
from autospec.state.store import Row, Store, Table
from autospec.tuning.cost import StepTime

if TYPE_CHECKING:
    from conftest import FakeEngine

    from autospec.demo.assets import DemoModels

SHORT = Settings(budget=60.0, max_draft=4, depths=(64,), rehearse=False)


def fake(fake_engine: FakeEngine, models: DemoModels, **launch: object) -> Prepared:
    engine = find_engine(fake_engine.folder)
    fields = {"model": models.draft, "context": 512, **launch}
    return prepare(engine, Launch("m", **fields), {})  # type: ignore[arg-type]


def run(prepared: Prepared, settings: Settings = SHORT) -> Calibration:
    with Store.open() as store:
        return asyncio.run(obtain(store, prepared, settings, "hardware"))


def stored_now(prepared: Prepared, settings: Settings, hardware: str) -> Calibration | None:
    with Store.open() as store:
        return stored(store, prepared, settings, hardware)


def test_every_batch_is_measured_at_depth_0_and_some_at_depth(
    fake_engine: FakeEngine, models: DemoModels
) -> None:
    found = run(fake(fake_engine, models, draft=models.draft_three_dropped))
    at = {(step.depth, step.batch) for step in found.target}
    assert {(0, batch) for batch in range(1, 6)} <= at
    assert {depth for depth, _ in at} == {0, 64}
    assert {step.batch for step in found.draft if step.depth == 0} == {1, 2, 3, 4, 5}


def test_what_was_measured_is_found_again_and_only_for_the_same_question(
    fake_engine: FakeEngine, models: DemoModels
) -> None:
    prepared = fake(fake_engine, models)
    assert stored_now(prepared, SHORT, "hardware") is None
    found = run(prepared)
    assert stored_now(prepared, SHORT, "hardware") == found
    assert stored_now(prepared, SHORT, "other hardware") is None
    assert stored_now(prepared, Settings(max_draft=5, depths=(64,)), "hardware") is None
    flags = fake(fake_engine, models, extra=("-t", "1"))
    assert stored_now(flags, SHORT, "hardware") is None
    other = fake(fake_engine, models, model=models.draft_one_dropped)
    assert stored_now(other, SHORT, "hardware") is None


def test_a_model_moved_to_another_folder_keeps_its_calibration(
    fake_engine: FakeEngine, models: DemoModels, tmp_path: Path
) -> None:
    found = run(fake(fake_engine, models))
    moved = tmp_path / "elsewhere.gguf"
    moved.symlink_to(models.draft)
    assert stored_now(fake(fake_engine, models, model=moved), SHORT, "hardware") == found


@pytest.mark.parametrize("document", ["{", "[]", '{"format": 99}', "[" * 99_999])
def test_a_calibration_that_cannot_be_understood_is_made_anew(
    fake_engine: FakeEngine, models: DemoModels, document: str
) -> None:
    prepared = fake(fake_engine, models)
    key = run(prepared).key
    with Store.open() as store:
        store.put(Row(Table.CALIBRATIONS, key, document))
    assert stored_now(prepared, SHORT, "hardware") is None
    assert run(prepared).target
    assert stored_now(prepared, SHORT, "hardware") is not None


def test_a_budget_that_ends_early_says_what_it_left_out(
    fake_engine: FakeEngine, models: DemoModels
) -> None:
    fake_engine.script_bench(row_seconds=0.3, spread=0.5)
    settings = Settings(budget=4.0, max_draft=16, depths=(64,), rehearse=False)
    found = run(fake(fake_engine, models), settings)
    assert found.seconds < 20
    assert any("budget ended before batches of" in sentence for sentence in found.skipped)


def test_a_depth_out_of_reach_is_said_and_not_tried(
    fake_engine: FakeEngine, models: DemoModels
) -> None:
    settings = Settings(budget=5.0, max_draft=2, depths=(64, 8000), rehearse=False)
    found = run(fake(fake_engine, models), settings)
    assert {step.depth for step in found.target} == {0, 64}
    assert any("depth 8000" in sentence for sentence in found.skipped)


def test_several_slots_are_measured_to_their_total_and_with_contexts_of_their_own(
    fake_engine: FakeEngine, models: DemoModels
) -> None:
    found = run(fake(fake_engine, models, slots=2))
    assert max(step.batch for step in found.target if step.shared) == 10
    assert {step.slots for step in found.target if not step.shared} == {2}


def test_an_engine_without_the_benchmark_is_named_with_what_to_do(
    fake_engine: FakeEngine, models: DemoModels
) -> None:
    fake_engine.bench.unlink()
    with pytest.raises(CalibrationError, match="no llama-batched-bench"):
        run(fake(fake_engine, models))


def test_a_pair_that_does_not_fit_is_refused_before_anything_is_launched(
    fake_engine: FakeEngine, tmp_path: Path, models: DemoModels
) -> None:
    broken = tmp_path / "draft.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(ModelError):
        fake(fake_engine, models, draft=broken)
    assert fake_engine.starts() == []


def test_a_plain_step_that_measures_dearer_than_a_wider_batch_is_not_believed() -> None:
    steps = [
        StepTime(1, 0, 90.0, 1.0, 5),
        StepTime(2, 0, 50.0, 1.0, 5),
        StepTime(3, 0, 60.0, 1.0, 5),
    ]
    believed, sentence = undisturbed(steps)
    assert believed[0].ms == 50.0
    assert sentence is not None
    assert "disturbed" in sentence
    assert undisturbed(steps[1:]) == (tuple(steps[1:]), None)


def test_progress_is_told_and_never_goes_back(fake_engine: FakeEngine, models: DemoModels) -> None:
    told: list[Progress] = []
    prepared = fake(fake_engine, models)
    with Store.open() as store:
        asyncio.run(obtain(store, prepared, SHORT, "hardware", told.append))
    shares = [step.share for step in told]
    assert shares == sorted(shares)
    assert any("depth 64" in step.what for step in told)


@pytest.mark.real
def test_a_real_pair_is_calibrated_and_its_rounds_are_heard(
    engine: Engine, models: DemoModels
) -> None:
    launch = Launch("m", model=models.draft, draft=models.draft_three_dropped, context=512)
    settings = Settings(budget=300.0, max_draft=4, depths=(64,))
    found = run(prepare(engine, launch, {}), settings)
    times = {(step.depth, step.batch): step.ms for step in found.target}
    assert {(0, batch) for batch in range(1, 6)} <= set(times)
    assert times[0, 5] > times[0, 1]
    assert {step.depth for step in found.target} == {0, 64}
    assert len(found.rounds) >= 10
    assert all(1 <= one.drafted <= 4 and one.draft_ms and one.verify_ms for one in found.rounds)
    assert 0 < sum(one.accepted for one in found.rounds) < sum(one.drafted for one in found.rounds)
    assert Calibration.from_json(found.to_json()) == found


@pytest.mark.real
def test_the_real_benchmark_leaves_nothing_behind_when_interrupted(
    engine: Engine, models: DemoModels
) -> None:
    launch = Launch("m", model=models.draft, context=512)
    prepared = prepare(engine, launch, {})
    seen = asyncio.Event()

    async def interrupt() -> None:
        task = asyncio.create_task(
            obtain(
                Store.open(),
                prepared,
                SHORT,
                "hardware",
                lambda step: seen.set() if ":" not in step.what else None,
            )
        )
        await seen.wait()
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(interrupt())
    running = [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _command(entry).startswith(str(engine.batched_bench))
    ]
    assert running == []


def _command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""
