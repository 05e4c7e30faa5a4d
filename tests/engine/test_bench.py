from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.bench import BenchRow, Combination, missing, parse_row, parse_rows
from autospec.errors import EngineOutputError

DATA = Path(__file__).parent.parent / "data"
ROW = (
    '{"n_kv_max": 2048, "is_pp_shared": 1, "pp": 0, "tg": 6, "pl": 4, "n_kv": 24, '
    '"t_pp": 0.000000, "speed_pp": -nan, "t_tg": 0.729696, "speed_tg": 32.89, '
    '"t": 0.729696, "speed": 32.89}'
)


def with_field(key: str, text: str) -> str:
    """ROW with the value of `key` replaced by the raw `text`."""
    head, tail = ROW.split(f'"{key}": ', 1)
    return head + f'"{key}": {text}' + tail[min(tail.find(","), tail.find("}") % 10_000) :]


def test_a_row_with_nan_speeds_is_read_because_speeds_are_not_used() -> None:
    row = parse_row(ROW)
    assert row == BenchRow(0, 6, 4, shared_prompt=True, seconds=0.729696, prompt_seconds=0.0)
    assert row.step_ms == pytest.approx(121.616)


@pytest.mark.parametrize("spelling", ["nan", "-nan", "-nan(ind)", "inf", "-inf", "NaN", "Infinity"])
def test_a_time_that_is_not_finite_is_refused_with_the_line_shown(spelling: str) -> None:
    with pytest.raises(EngineOutputError, match='"pl": 4') as refusal:
        parse_row(with_field("t_tg", spelling))
    assert refusal.value.line == with_field("t_tg", spelling)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("t_tg", "0"), ("t_tg", "-1.5"), ("t_tg", "true"), ("t_tg", '"fast"'), ("t_tg", "1e999"),
        ("t_tg", "9" * 400),
        ("tg", "0"), ("tg", "2.5"), ("pl", "0"), ("pl", "-3"), ("pl", "1e30"), ("pp", "-nan"),
        ("pp", "-1"), ("pl", "null"),
    ],
)  # fmt: skip
def test_a_row_without_a_usable_figure_is_refused(key: str, value: str) -> None:
    with pytest.raises(EngineOutputError, match=f"usable '{key}'"):
        parse_row(with_field(key, value))


def test_a_row_that_was_cut_off_is_refused() -> None:
    with pytest.raises(EngineOutputError, match="unreadable"):
        parse_row(ROW[: len(ROW) // 2])


@pytest.mark.parametrize("line", ["", "   \n", "main: n_kv_max = 2048", "|  PP |  TG |"])
def test_lines_that_are_no_rows_are_passed_over(line: str) -> None:
    assert parse_row(line) is None


def test_an_endless_row_is_refused() -> None:
    with pytest.raises(EngineOutputError, match="endless"):
        parse_row('{"pp": ' + "1" * 100_000 + "}")


def test_every_row_of_a_real_run_is_read() -> None:
    lines = (DATA / "batched_bench_pps_not_unified.jsonl").read_text().splitlines()
    rows = list(parse_rows(lines))
    assert len(rows) == sum(1 for line in lines if line.strip())
    assert {row.depth for row in rows} == {0, 512}


def test_combinations_that_the_tool_left_out_are_named_once() -> None:
    asked = [Combination(0, 1), Combination(0, 1), Combination(512, 8), Combination(512, 9)]
    rows = [BenchRow(0, 6, 1, shared_prompt=True, seconds=1.0)]
    assert missing(asked, rows) == [Combination(512, 8), Combination(512, 9)]


@given(st.text(max_size=200) | st.text('{}[]",:0123456789.-naif ptgl_', max_size=200))
def test_junk_is_either_no_row_or_refused(text: str) -> None:
    try:
        row = parse_row(text)
    except EngineOutputError as refusal:
        assert refusal.line == text.strip()
    else:
        assert row is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    )
)
def test_any_json_value_as_a_time_gives_a_positive_finite_one_or_a_refusal(value: object) -> None:
    line = with_field("t_tg", json.dumps(value))
    try:
        row = parse_row(line)
    except EngineOutputError:
        return
    assert row is not None
    assert 0 < row.seconds < float("inf")
