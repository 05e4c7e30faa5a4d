"""`autospec calibrate` from the command line: measured, known again, said in words and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from autospec.calibration.donation import read_donation
from autospec.cli.calibrate import command
from autospec.errors import UsageError

if TYPE_CHECKING:
    from conftest import FakeEngine

    from autospec.demo.assets import DemoModels


@pytest.fixture
def config(tmp_path: Path, models: DemoModels) -> Path:
    file = tmp_path / "autospec.toml"
    file.write_text(
        f'[models.small]\npath = "{models.draft}"\ndraft = "{models.draft_three_dropped}"\n'
        f"context = 512\n[calibration]\nmax_draft = 4\ndepths = [64]\nrehearse = false\n"
    )
    return file


def run(fake: FakeEngine, config: Path, *arguments: str) -> Result:
    words = ["--config", str(config), "--engine", str(fake.folder), *arguments]
    return CliRunner().invoke(command, words, catch_exceptions=False)


def test_it_measures_once_and_then_knows(fake_engine: FakeEngine, config: Path) -> None:
    first, again = (json.loads(run(fake_engine, config, "--json").stdout) for _ in range(2))
    forced = json.loads(run(fake_engine, config, "--json", "--force").stdout)
    assert [document[0]["cached"] for document in (first, again, forced)] == [False, True, False]
    assert first[0]["target"] == again[0]["target"]
    assert first[0]["setting"]["why"]


def test_the_curve_the_table_and_what_it_means_are_shown(
    fake_engine: FakeEngine, config: Path
) -> None:
    shown: Any = run(fake_engine, config).stdout
    assert "ms a step of the target" in shown
    assert "target, depth 64" in shown
    assert "draft, depth 0" in shown
    assert "median error" in shown
    assert "tokens/s predicted against" in " ".join(shown.split())


def test_a_model_that_is_not_there_is_named_with_those_that_are(
    fake_engine: FakeEngine, config: Path
) -> None:
    with pytest.raises(UsageError, match="large") as error:
        run(fake_engine, config, "large")
    assert "small" in (error.value.hint or "")


def test_what_is_exported_can_be_fitted_and_names_no_path(
    fake_engine: FakeEngine, config: Path, tmp_path: Path
) -> None:
    given = tmp_path / "given.json"
    run(fake_engine, config, "--export", str(given))
    text = given.read_text()
    assert str(tmp_path) not in text
    assert "small" not in text
    found = read_donation(given)
    assert [step.batch for step in found.target if step.depth == 0] == [1, 2, 3, 4, 5]
    assert len(found.curves[0].relative_cost) == 5
    with pytest.raises(UsageError, match="cannot be written"):
        run(fake_engine, config, "--export", str(tmp_path / "missing" / "given.json"))
