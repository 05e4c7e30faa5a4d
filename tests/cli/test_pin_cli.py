from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.cli.app import main
from autospec.config.pinning import _value

TEXT = """\
# mine
[models.chat]  # the good one
hf = "a/b"
draft_hf = "c/d"
n_max = 8    # by hand
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "autospec.toml"
    path.write_text(TEXT)
    monkeypatch.setenv("AUTOSPEC_CONFIG", str(path))
    return path


def pins(file: Path) -> dict[str, object]:
    model = tomllib.loads(file.read_text())["models"]["chat"]
    return {key: value for key, value in model.items() if key not in ("hf", "draft_hf")}


def test_pins_are_set_in_one_step_and_the_rest_of_the_file_stays(
    file: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["pin", "chat", "n_max=6", "p_min=0.4", "type=draft-simple"]) == 0
    assert file.read_text().startswith(TEXT.replace("n_max = 8 ", "n_max = 6 "))
    assert pins(file) == {"n_max": 6, "p_min": 0.4, "type": "draft-simple"}
    said = capsys.readouterr().out
    assert "chat: n_max = 6, was 8" in said
    assert "chat: p_min = 0.4, was auto" in said
    assert "autospec reload" in said


def test_unpinning_names_what_was_pinned_and_unpins_all_without_a_key(
    file: Path, capsys: pytest.CaptureFixture[str]
):
    main(["pin", "chat", "p_min=0.4"])
    assert main(["unpin", "chat", "n_max"]) == 0
    assert pins(file) == {"p_min": 0.4}
    main(["pin", "chat", "n_max=5"])
    capsys.readouterr()
    assert main(["unpin", "chat", "--json"]) == 0
    assert pins(file) == {}
    assert json.loads(capsys.readouterr().out) == {
        "file": str(file),
        "model": "chat",
        "changes": [
            {"key": "n_max", "before": 5, "after": None},
            {"key": "p_min", "before": 0.4, "after": None},
        ],
    }
    assert "# the good one" in file.read_text()


def test_what_is_so_already_leaves_the_file_untouched(
    file: Path, capsys: pytest.CaptureFixture[str]
):
    before = file.stat().st_mtime_ns, file.stat().st_ino
    assert main(["pin", "chat", "n_max=8"]) == 0
    assert main(["unpin", "chat", "p_min"]) == 0
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before
    assert "stays as it is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["chat", "n_max=999"], 2, "n_max"),
        (["chat", "n_max=6", "p_min=7"], 2, "p_min"),
        (["chat", "n_max=many"], 2, "whole number"),
        (["chat", "n_max"], 2, "pins nothing"),
        (["chat", "n_max="], 2, "pins nothing"),
        (["chat", "slots=2"], 2, "slots is no pin"),
        (["gone", "n_max=2"], 2, "models there: chat"),
        (["chat"], 2, "KEY=VALUE"),
    ],
)
def test_what_does_not_fit_is_said_and_leaves_the_file_alone(
    file: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, why: str
):
    assert main(["pin", *words]) == code
    assert why in capsys.readouterr().err
    assert file.read_text() == TEXT


def test_a_list_needs_no_brackets(file: Path):
    assert main(["pin", "chat", "thresholds=0.9,0.5", "type=draft-simple, ngram-mod"]) in (0, 2)
    assert _value("0.9,0.5") == [0.9, 0.5]
    assert _value("[0.9, 0.5]") == [0.9, 0.5]
    assert _value("draft-simple") == "draft-simple"
    assert _value('"off"') == "off"


@given(st.text(max_size=30))
def test_any_word_is_some_value_and_no_second_key(text: str):
    value = _value(text)
    assert isinstance(value, str | int | float | list | dict) or value is not None


def test_a_file_that_cannot_be_replaced_is_said(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert main(["pin", "chat", "n_max=6"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert file.read_text() == TEXT
    assert list(file.parent.iterdir()) == [file]
