"""`autospec doctor` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autospec.cli.app import main
from autospec.daemon import doctor

if TYPE_CHECKING:
    from conftest import FakeEngine


@pytest.fixture(autouse=True)
def silent_about_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "list_devices", lambda _engine: None)


@pytest.fixture
def arguments(tmp_path: Path, fake_engine: FakeEngine, free_port: int) -> list[str]:
    file = tmp_path / "autospec.toml"
    file.write_text(f'[models.chat]\nhf = "a/b"\nlisten = "127.0.0.1:{free_port}"\n')
    return ["doctor", "--config", str(file), "--engine", str(fake_engine.folder)]


def test_without_errors_it_exits_with_0_and_json_names_the_applier(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["applier"] == "scalar"
    assert said["ok"]
    assert {"level", "subject", "sentence", "remedy"} == set(said["findings"][0])


def test_with_errors_it_exits_with_1_and_shows_the_way_out(
    arguments: list[str], fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.server.unlink()
    assert main(arguments) == 1
    said = capsys.readouterr().out
    assert "ERROR" in said
    assert "→ install one" in said
    assert said.rstrip().endswith("1 error: mend the errors first")


def test_the_table_survives_a_name_that_looks_like_markup(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "[bold]x[/bold]"
    assert main(["doctor", "--config", str(odd)]) == 1
    assert "[bold]" in capsys.readouterr().out.replace("\n", "")
