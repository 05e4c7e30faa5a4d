"""`autospec check`, `autospec schema` and `autospec import` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import gguf_writer
import pytest

from autospec.cli.app import main

GOOD = '[models.chat]\nhf = "a/b"\n'
BAD = GOOD + "slot = 2\nn_max = 99\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "autospec.toml"


def test_a_sound_file_exits_with_0_and_says_where_models_are_reached(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(GOOD + "[models.off]\nhf = 'c/d'\nenabled = false\n")

    assert main(["check", "--config", str(file)]) == 0
    assert capsys.readouterr().out == (
        f"{file}: no faults\n"
        "  chat: http://127.0.0.1:8080\n"
        "  off: http://127.0.0.1:8080 (disabled)\n"
    )


def test_faults_are_printed_one_a_line_and_exit_with_2(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(BAD)

    assert main(["check", "--config", str(file)]) == 2
    assert capsys.readouterr().out == (
        f"{file}:3: models.chat.slot: unknown key (did you mean slots?)\n"
        f"{file}:4: models.chat.n_max: 99 is out of range (expected a whole number from 1 to 64)\n"
    )


def test_json_carries_the_same(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(BAD)

    assert main(["check", "--config", str(file), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["models"]) == (False, {})
    assert report["faults"][0] == {
        "file": str(file),
        "line": 3,
        "key": "models.chat.slot",
        "message": "unknown key",
        "expected": None,
        "nearest": "slots",
    }
    file.write_text(GOOD)
    assert main(["check", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == {"chat": "http://127.0.0.1:8080"}


def test_no_file_at_all_exits_with_2_and_a_way_out(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--config", str(file)]) == 2
    assert "autospec import" in capsys.readouterr().err


def test_schema_prints_json_and_the_example_toml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "autospec.toml"
    assert main(["schema", "--example"]) == 0
    assert '#listen = "127.0.0.1:8080"\n' in capsys.readouterr().out


def test_import_then_check(
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    gguf_writer.write(tmp_path / "t.gguf")

    assert main(["import", "llama-server -m t.gguf -ngl 99 --draft-max 8", "-o", str(file)]) == 0
    said = capsys.readouterr()
    assert "note: you ran n_max 8" in said.err
    assert said.out == ""
    assert main(["check", "--config", str(file)]) == 0


def test_import_prints_without_an_output_and_takes_words_after_dashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["import", "--", "llama-server", "-hf", "a/b", "-np", "1"]) == 0
    said = capsys.readouterr()
    assert said.out.endswith('[models.b]\nhf = "a/b"\nslots = 1\n')
    assert said.err == ""


def test_import_of_nothing_usable_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "llama-server --port 1"]) == 2
    assert "names no model" in capsys.readouterr().err
