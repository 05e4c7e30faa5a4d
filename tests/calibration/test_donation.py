"""A calibration to give away: it tells nothing of its owner, and comes back from hostile files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autospec.calibration.curves import read_curves
from autospec.calibration.donation import donation_json, read_donation
from autospec.calibration.result import Calibration
from autospec.errors import UsageError
from autospec.hardware.snapshot import snapshot
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Round

if TYPE_CHECKING:
    from pathlib import Path


def calibration() -> Calibration:
    target = tuple(StepTime(b, 0, 50.0 + b, 0.5, 5) for b in (1, 2, 3, 4, 6))
    deep = StepTime(1, 256, 60.0, 1.0, 3)
    draft = (StepTime(1, 0, 5.0, 0.1, 5),)
    rounds = (Round((0.9, 0.5), 1, 10.0, 60.0), Round((0.7,), 1, 5.0, 58.0))
    return Calibration(
        "key", "my secret model", 12345.0, 60.0, "build 1", 4, (*target, deep), draft, rounds,
        88.0, ("skipped /home/me",), ("remark about host-7",),
    )  # fmt: skip


def document() -> dict[str, Any]:
    return donation_json(calibration(), snapshot().to_dict(), name="a chip")


def test_what_is_given_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(document()))
    found, given_ = read_donation(path), calibration()
    assert (found.target, found.draft, found.rounds) == (given_.target, given_.draft, given_.rounds)
    assert found.rehearsal_depth == 88.0
    (curve,) = read_curves(path)
    assert curve.name == "a chip"
    assert curve.relative_cost == pytest.approx([1, 52 / 2 / 51, 53 / 3 / 51, 54 / 4 / 51])


def test_nothing_tells_whose_it_is() -> None:
    text = json.dumps(document())
    for secret in ("secret", "/home", "host-7", "key", "12345"):
        assert secret not in text.replace("monkey", "")
    assert set(document()["machine"]) == {"cpu", "cores", "gpus"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 99}, "another format"),
        ({"target": 3}, "no list"),
        ({"target": [3]}, "no step times"),
        ({"target": [{"batch": 1}]}, "no step times"),
        ({"draft": [{"batch": 0}]}, "no step times"),
        ({"rounds": [{"p": [2.0], "accepted": 0}]}, "probabilities"),
        ({"rounds": ["x"]}, "not an object"),
        ({"rounds": [{"p": [], "accepted": 0}] * 10_001}, "no list of up to"),
        ({"rehearsal_depth": "deep"}, "no depth"),
        ({"rehearsal_depth": -1}, "no depth"),
        ({"curves": []}, "no cost curve"),
    ],
)
def test_files_that_lie_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(document() | change))
    with pytest.raises(UsageError, match=said):
        read_donation(path)


JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(["target", "draft", "rounds", "rehearsal_depth", "format", "curves"]), JUNK)
def test_any_junk_is_read_or_refused(tmp_path: Path, key: str, junk: object) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(document() | {key: junk}))
    try:
        assert read_donation(path).curves
    except UsageError as error:
        assert str(path) in str(error)
