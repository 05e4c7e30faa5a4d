"""Files with costs and rounds: lenient about the tool's quirks, strict about what is used."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.calibration.curves import read_curves, read_rounds, read_steps
from autospec.errors import UsageError

DATA = Path(__file__).parent.parent / "data"
BENCH = DATA / "batched_bench_pps_not_unified.jsonl"
ROW = '{"pp": 0, "tg": 4, "pl": 1, "is_pp_shared": 1, "t_tg": 0.4, "speed_pp": -nan}'


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "file"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_seed_curves_are_read():
    curves = read_curves(DATA / "seed_curves.json")
    assert [len(curve.relative_cost) for curve in curves] == [32, 32, 32, 16]
    assert [curve.skip for curve in curves] == [1, 3, 1, 1]


def test_benchmark_output_gives_a_curve_a_depth_up_to_the_first_hole():
    curves = read_curves(BENCH)
    assert [curve.name for curve in curves] == ["depth 0", "depth 512"]
    assert [len(curve.relative_cost) for curve in curves] == [14, 14]
    assert curves[0].notes == ("batches behind the gap at 15 are left out: [16]",)
    assert curves[0].relative_cost[1] == pytest.approx(0.720482 / 2 / 0.388026)


def test_the_warm_up_row_of_each_run_is_left_out():
    steps = {(step.depth, step.batch): step for step in read_steps(BENCH)}
    assert steps[0, 1].ms == pytest.approx(1000 * 0.388026 / 6)
    assert steps[512, 1].ms == pytest.approx(1000 * 0.567642 / 6)


def test_a_first_row_that_is_not_repeated_is_kept(written):
    path = written("\n".join([ROW, "", ROW.replace('"pl": 1', '"pl": 2'), "main: a log line"]))
    assert [step.batch for step in read_steps(path)] == [1, 2]


def test_without_a_prompt_there_are_no_separate_contexts(written):
    path = written(ROW.replace('"is_pp_shared": 1', '"is_pp_shared": 0').replace(": 1,", ": 2,"))
    assert read_steps(path)[0].batch == 2
    assert read_steps(path)[0].slots == 1


@pytest.mark.parametrize("key", ["t_tg", "tg", "pl", "pp"])
@pytest.mark.parametrize("value", ["-nan", "nan", "inf", "null", '"1"', "-1", "1e999"])
def test_a_row_without_a_usable_figure_is_refused_with_the_row(written, key, value):
    fields = {"pp": "0", "tg": "4", "pl": "2", "t_tg": "0.4"} | {key: value}
    row = "{" + ", ".join(f'"{k}": {v}' for k, v in fields.items()) + "}"
    path = written(ROW + "\n" + row)
    with pytest.raises(UsageError) as error:
        read_steps(path)
    assert f"{path}:2" in str(error.value)
    assert value.strip('"') in str(error.value)


@pytest.mark.parametrize(
    "document",
    [
        {"curves": 5},
        {"curves": [5]},
        {"curves": [{}]},
        {"curves": [{"relative_cost": "1"}]},
        {"curves": [{"relative_cost": [1, True]}]},
        {"curves": [{"relative_cost": [1, float("nan"), 0.5]}]},
        {"curves": [{"relative_cost": [1, 1e400, 0.5]}]},
        {"curves": [{"relative_cost": [2, 0.5]}]},
        {"curves": [{"relative_cost": [1, 0.5, 0.4], "skip": 2}]},
        {"curves": [{"relative_cost": [1, 0.5, 0.4], "skip": 0}]},
        {"curves": [{"relative_cost": [1] + [0.5] * 1025}]},
        {"curves": []},
    ],
)
def test_unusable_curves_are_refused(written, document):
    with pytest.raises(UsageError):
        read_curves(written(json.dumps(document)))


@pytest.mark.parametrize("text", ["", "\n\n", "no row\n", "[" * 100_000, "[1, 0.5]"])
def test_a_file_without_costs_is_refused(written, text):
    with pytest.raises(UsageError, match="holds no"):
        read_curves(written(text))
    with pytest.raises(UsageError, match="holds no"):
        read_steps(written(text))


def test_a_curve_needs_its_first_two_batches(written):
    with pytest.raises(UsageError, match="batches 1 and 2"):
        read_curves(written(ROW + "\n" + ROW.replace('"pl": 1', '"pl": 3')))


def test_the_recorded_rounds_are_read():
    rounds = read_rounds(DATA / "trace_draft_same_weights.jsonl")
    assert len(rounds) == 105
    assert rounds[0].accepted == 12
    assert rounds[0].draft_ms == 153.38


def test_times_are_optional(written):
    (only,) = read_rounds(written('\n{"p": [0.5, 1], "accepted": 1}\n\n'))
    assert (only.drafted, only.draft_ms, only.verify_ms) == (2, None, None)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "nonsense",
        '{"accepted": 0}',
        '{"p": [0.5]}',
        '{"p": [1.5], "accepted": 0}',
        '{"p": [NaN], "accepted": 0}',
        '{"p": [true], "accepted": 0}',
        '{"p": [0.5], "accepted": 2}',
        '{"p": [0.5], "accepted": -1}',
        '{"p": [0.5], "accepted": 0.5}',
        '{"p": [0.5], "accepted": true}',
        '{"p": [0.5], "accepted": 0, "draft_ms": -1}',
        '{"p": [0.5], "accepted": 0, "verify_ms": Infinity}',
        '{"p": [' + "0.5," * 1024 + '0.5], "accepted": 0}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_round_is_refused_with_its_number(written, line):
    path = written('{"p": [0.5], "accepted": 0}\n' + line)
    with pytest.raises(UsageError) as error:
        read_rounds(path)
    assert f"{path}:2" in str(error.value)
    assert line[:50] in str(error.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_rounds(tmp_path / "missing")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        read_curves(binary)
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(UsageError, match="holds no round"):
        read_rounds(empty)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("fuzz") / "file"
    path.write_text(text, encoding="utf-8")
    for read in (read_curves, read_steps, read_rounds):
        try:
            assert read(path)
        except UsageError:
            continue
