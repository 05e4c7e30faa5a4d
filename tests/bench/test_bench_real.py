"""`autospec bench` on the real engine: every arm takes part, and the report is of one piece."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from autospec.bench.suite import QUICK, SUITES
from autospec.cli.bench import command

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = [pytest.mark.real, pytest.mark.live]

ARMS = {"plain", "default", "best_static", "pr17034", "scalar", "live"}
TINY = replace(
    QUICK,
    tokens=24,
    rows=2,
    passes=1,
    width=100.0,
    learning=3.0,
    n_max=(2, 4),
    p_min=(0.0,),
    sweep_tokens=16,
)


def test_every_arm_answers_the_same_requests_and_is_set_against_plain(
    engine: Engine, models: DemoModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUITES, "quick", TINY)
    config = tmp_path / "autospec.toml"
    config.write_text(
        f'[models.small]\npath = "{models.draft}"\ndraft = "{models.draft_one_dropped}"\n'
        'type = "draft-simple"\ncontext = 1024\n'
        "[calibration]\nmax_draft = 4\ndepths = [64]\nbudget = 60\n"
    )
    words = ["--config", str(config), "--engine", str(engine.folder), "--workloads", "code,prose"]
    result = CliRunner().invoke(command, [*words, "--json"], catch_exceptions=False)
    report = json.loads(result.stdout)

    assert report["finished"]
    assert not report["failed"]
    assert set(report["arms"]) == ARMS
    for row in report["raw"]:
        assert set(row["samples"]) == ARMS
        assert {one["tokens"] for one in row["samples"].values()} == {TINY.tokens}
        assert all(one["accepted"] <= one["drafted"] for one in row["samples"].values())
        assert row["samples"]["default"]["drafted"] > row["samples"]["plain"]["drafted"] == 0
    for cells in report["arms"].values():
        assert set(cells) == {"code", "prose"}
        for figures in cells.values():
            assert 0 < figures["low"] <= figures["tokens_per_second"] <= figures["high"]
            assert figures["compared"] == TINY.rows
            assert figures["diverged"] <= figures["compared"]
    assert report["arms"]["plain"]["code"]["diverged"] == 0
    assert 0 < report["arms"]["default"]["code"]["acceptance"] <= 1
    assert set(report["overall"]) == ARMS - {"plain"}
    assert set(report["overall"]["live"]) == {"plain", "default", "best_static", "scalar"}
    drafted = sum(row["samples"]["live"]["drafted"] for row in report["raw"])
    by_position = report["acceptance_by_position"]
    assert bool(by_position) == (drafted > 0)
    assert all(0 <= one["share"] <= 1 for one in by_position)
    assert report["prediction"]["round_cost"]["rounds"] > 0
    assert report["calibration_cost"]["sweep"]["triples"] >= 2
