"""Out of memory: one thing less at a time, each tried once, remembered and shown."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
from supervised import PLAIN, charge_of, drafting, engine_of, gone, supervised

from autospec.daemon.ladder import LEAST_CONTEXT, Step, lowered, next_step
from autospec.daemon.lifecycle import Phase
from autospec.daemon.setting import Setting
from autospec.daemon.surroundings import Surroundings
from autospec.daemon.terms import Charge, Terms
from autospec.engine.launch import Endpoint, Launch
from autospec.hardware.pressure import Pressure

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeEngine

OUT_OF_MEMORY = "ggml_backend_cuda_buffer_type_alloc_buffer: out of memory"


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    extra = ("-ngl", "99", "-ngld", "99")
    return Launch("m", tmp_path / "m.gguf", draft=tmp_path / "d.gguf", context=8192, extra=extra)


def steps(
    fake: FakeEngine, launch: Launch, setting: Setting, *, on_gpu: bool, context: int = 8192
) -> list[Step]:
    """All steps from the first on, as if none helped."""
    able, taken = engine_of(fake).capabilities, list[Step]()
    terms = Terms(charge_of(fake, Endpoint()), setting)
    while True:
        step = next_step(
            launch, terms.setting, able, context=context, on_gpu=on_gpu, taken=terms.steps
        )
        if step is None:
            return taken
        terms = terms.without(step)
        taken.append(step)


def test_all_steps_are_taken_once_and_in_order(fake_engine: FakeEngine, launch: Launch) -> None:
    found = steps(fake_engine, launch, drafting(4), on_gpu=True)
    assert found == [Step.DRAFT_OFF_GPU, Step.HALF_CONTEXT, Step.NO_SPECULATION]


def test_without_a_gpu_no_draft_can_leave_it(fake_engine: FakeEngine, launch: Launch) -> None:
    found = steps(fake_engine, launch, drafting(4), on_gpu=False)
    assert found == [Step.HALF_CONTEXT, Step.NO_SPECULATION]


def test_plain_decoding_has_no_draft_to_give_up(fake_engine: FakeEngine, launch: Launch) -> None:
    assert steps(fake_engine, launch, PLAIN, on_gpu=True) == [Step.HALF_CONTEXT]


def test_a_context_is_not_cut_below_what_a_chat_needs(
    fake_engine: FakeEngine, launch: Launch
) -> None:
    context = 2 * LEAST_CONTEXT - 1
    assert not steps(fake_engine, launch, PLAIN, on_gpu=False, context=context)
    two = replace(launch, slots=2)
    assert not steps(fake_engine, two, PLAIN, on_gpu=False, context=2 * LEAST_CONTEXT)


def test_a_lowered_launch_has_half_the_context_and_its_draft_on_the_cpu(
    fake_engine: FakeEngine, launch: Launch
) -> None:
    able = engine_of(fake_engine).capabilities
    found = lowered(
        replace(launch, context=0),
        able,
        context=32768,
        taken=[Step.DRAFT_OFF_GPU, Step.HALF_CONTEXT],
    )
    assert found.context == 16384
    assert found.extra == ("-ngl", "99", "--spec-draft-ngl", "0")
    assert lowered(launch, able, context=8192, taken=[]) == launch


# --- against the fake engine --------------------------------------------------------------


def starved(fake: FakeEngine) -> Charge:
    charge = charge_of(fake, Endpoint(port=0))
    launch = replace(charge.launch, context=8192)
    return replace(charge, launch=launch, context=8192, on_gpu=True)


def argument(start: dict[str, list[str]], name: str) -> str | None:
    argv = start["argv"]
    return argv[argv.index(name) + 1] if name in argv else None


@pytest.mark.fault
@pytest.mark.parametrize(
    ("script", "degraded"),
    [
        ({"context_limit": 4096}, [Step.DRAFT_OFF_GPU, Step.HALF_CONTEXT]),
        (
            {"fail_from": {"flag": "draft-simple", "code": 1, "log": [OUT_OF_MEMORY]}},
            [Step.DRAFT_OFF_GPU, Step.HALF_CONTEXT, Step.NO_SPECULATION],
        ),
    ],
)
def test_a_child_comes_up_with_less_and_it_is_remembered_and_shown(
    fake_engine: FakeEngine, free_port: int, script: dict[str, object], degraded: list[Step]
):
    fake_engine.script_server(**script)
    told: list[Sequence[Step]] = []

    async def main() -> None:
        charge = replace(starved(fake_engine), endpoint=Endpoint(port=free_port))
        better = drafting(7, "the tuner's")
        async with supervised(charge, drafting(4), lambda *_: better, on_step=told.append) as it:
            await it.until(Phase.READY)
            assert it.supervisor.degraded == tuple(degraded)
            assert it.said("memory ran out; from now on: half the context") == 1
            assert [argument(start, "--ctx-size") for start in fake_engine.starts()][:2] == [
                "8192",
                "8192",
            ]
            assert argument(fake_engine.starts()[1], "--spec-draft-ngl") == "0"
            assert argument(fake_engine.starts()[-1], "--ctx-size") == "4096"
            assert told[-1] == tuple(degraded)
            if Step.NO_SPECULATION in degraded:
                assert not it.supervisor.setting.speculation.on
                it.child.kill()
                await it.until(lambda: it.said("ready: ") == 2)
                assert len(fake_engine.starts()) == len(degraded) + 2
                assert argument(fake_engine.starts()[-1], "--ctx-size") == "4096"

    asyncio.run(main())


@pytest.mark.fault
def test_when_nothing_is_left_to_give_up_it_fails_and_says_so(
    fake_engine: FakeEngine, free_port: int
):
    fate = {"when": "loading", "code": 1, "log": [OUT_OF_MEMORY]}
    fake_engine.script_server(exit=fate)

    async def main() -> None:
        charge = replace(starved(fake_engine), endpoint=Endpoint(port=free_port))
        async with supervised(charge, drafting(4)) as it:
            await it.until(Phase.FAILED)
            await it.task
            assert it.supervisor.life.final
            assert "out of memory" in it.supervisor.life.reason
            assert len(it.supervisor.degraded) == 3
            assert len(fake_engine.starts()) == 4

    asyncio.run(main())


@pytest.mark.fault
@pytest.mark.parametrize("by", ["the counter", "scarcity", "nobody"])
def test_a_child_killed_for_its_memory_is_told_from_one_killed_by_somebody(
    fake_engine: FakeEngine, free_port: int, by: str
):
    left = 100 if by == "scarcity" else 90_000
    victims: list[psutil.Process] = []

    def pressure() -> Pressure:
        killed = sum(map(gone, victims)) if by == "the counter" else 0
        return Pressure(kills=7 + killed, available=left, usable=100_000)

    async def main() -> None:
        charge = replace(starved(fake_engine), endpoint=Endpoint(port=free_port), on_gpu=False)
        async with supervised(charge, around=Surroundings(pressure=pressure)) as it:
            await it.until(Phase.READY)
            victims.append(it.child)
            it.child.send_signal(signal.SIGKILL)
            await it.until(lambda: it.said("ready: ") == 2)
            cause = it.supervisor.last_cause
            assert cause is not None
            if by == "nobody":
                assert cause.kind == "killed"
                assert it.supervisor.degraded == ()
            else:
                assert cause.kind == "out_of_memory"
                assert it.supervisor.degraded == ("half the context",)

    asyncio.run(main())
