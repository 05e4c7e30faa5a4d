from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.find import Engine
from autospec.engine.gguf import GgufHeader, read_header
from autospec.engine.launch import Launch
from autospec.engine.placement import PROGRAM, draft_mib, parse_fitted, resolve
from autospec.errors import EngineOutputError
from autospec.hardware.gpu import EngineDevice

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels

GPU = EngineDevice(name="CUDA0", description="A GPU", memory_total=24 << 30, memory_free=20 << 30)
DRAFT = GgufHeader(Path("d.gguf"), "llama", 500 << 20, 10, layers=24, embedding=1024, context=8192)


def with_fit_program(engine: Engine, folder: Path, prints: str) -> Engine:
    program = folder / PROGRAM
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\necho "log line" >&2\n{prints}\n')
    program.chmod(0o755)
    return replace(engine, folder=folder)


def test_what_fits_is_spelled_out_for_server_and_benchmark(engine: Engine, tmp_path: Path) -> None:
    fitting = with_fit_program(engine, tmp_path, "echo '-c 4096 -ngl 31 -ts 3,1'")
    launch = Launch("m", model=Path("m.gguf"), context=0, extra=("-fa", "on"))
    placed = resolve(fitting, launch, [GPU], DRAFT).launch
    assert placed.context == 4096
    assert placed.extra == ("-fa", "on", "-ngl", "31", "-ts", "3,1", "--fit", "off")


def test_room_is_left_for_the_draft(engine: Engine, tmp_path: Path) -> None:
    fitting = with_fit_program(engine, tmp_path, "echo '-c 4096 -ngl 31'")
    resolve(fitting, Launch("m", model=Path("m.gguf"), context=4096), [GPU], DRAFT)
    asked = (tmp_path / "asked").read_text().split()
    assert int(asked[asked.index("--fit-target") + 1]) == 1024 + draft_mib(DRAFT, 4096)
    assert draft_mib(DRAFT, 4096) > 500
    assert draft_mib(None, 4096) == 0


@pytest.mark.parametrize(
    "extra", [("-ngl", "20"), ("--fit", "off"), ("-ts", "1,1"), ("-ot", "a=CPU")]
)
def test_what_the_user_placed_is_left_alone(
    engine: Engine, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    fitting = with_fit_program(engine, tmp_path, "echo '-c 1 -ngl 1'")
    launch = Launch("m", model=Path("m.gguf"), extra=extra)
    assert resolve(fitting, launch, [GPU], DRAFT).launch is launch
    assert not (tmp_path / "asked").exists()


def test_without_a_gpu_there_is_nothing_to_place(engine: Engine) -> None:
    launch = Launch("m", model=Path("m.gguf"))
    assert resolve(engine, launch, [], DRAFT).launch is launch
    assert resolve(engine, launch, None, DRAFT).note is None


@pytest.mark.parametrize("prints", ["exit 1", "echo nothing", "echo '-c 10 -x 1'"])
def test_a_tool_that_fails_leaves_the_placement_to_the_engine_and_says_so(
    engine: Engine, tmp_path: Path, prints: str
) -> None:
    launch = Launch("m", model=Path("m.gguf"))
    placement = resolve(with_fit_program(engine, tmp_path, prints), launch, [GPU], DRAFT)
    assert placement.launch is launch
    assert placement.note is not None
    assert "left to the engine" in placement.note


def test_a_missing_tool_is_said_with_what_to_do(engine: Engine, tmp_path: Path) -> None:
    launch = Launch("m", model=Path("m.gguf"))
    note = resolve(replace(engine, folder=tmp_path), launch, [GPU], DRAFT).note
    assert note is not None
    assert "-ngl" in note


def test_quoted_patterns_stay_one_argument() -> None:
    assert parse_fitted("-c 8 -ngl 9 -ot 'blk\\.(1|2).*=CPU'\n")[-1] == "blk\\.(1|2).*=CPU"


def test_a_context_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(EngineOutputError, match="no placement"):
        parse_fitted(f"-c {'9' * 5000} -ngl 9\n")


@given(st.text(max_size=120) | st.text("-c ngltso0123456789'\"\n", max_size=120))
def test_junk_is_a_placement_or_refused(text: str) -> None:
    try:
        fitted = parse_fitted(text)
    except EngineOutputError:
        return
    assert fitted[0] == "-c"
    assert fitted[1].isdigit()
    assert len(fitted) % 2 == 0


@pytest.mark.real
def test_the_real_tool_takes_these_arguments(engine: Engine, models: DemoModels) -> None:
    launch = Launch("m", model=models.draft, context=512)
    placement = resolve(engine, launch, [GPU], read_header(models.draft))
    assert placement.note is None
    assert placement.launch.context == 512
    assert placement.launch.extra[0] == "-ngl"
