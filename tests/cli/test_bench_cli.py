"""`autospec bench` on the command line: compares, reports, resumes, replays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from autospec import paths
from autospec.bench.suite import QUICK, SUITES
from autospec.cli.app import main
from autospec.cli.bench import command
from autospec.errors import ServeError, UsageError

if TYPE_CHECKING:
    from conftest import FakeEngine

    from autospec.demo.assets import DemoModels

DATA = Path(__file__).parent.parent / "data"
TINY = replace(
    QUICK, tokens=16, rows=2, passes=1, learning=1.0, n_max=(2, 4), p_min=(0.0,), sweep_tokens=16
)
FIGURES = {
    "tokens_per_second",
    "low",
    "high",
    "ratio_vs_plain",
    "ratio_vs_default",
    "ratio_vs_best_static",
}


@pytest.fixture
def config(tmp_path: Path, models: DemoModels) -> Path:
    file = tmp_path / "autospec.toml"
    file.write_text(
        f'[models.small]\npath = "{models.draft}"\ndraft = "{models.draft_three_dropped}"\n'
        f"context = 2048\n[calibration]\nmax_draft = 4\ndepths = [64]\nrehearse = false\n"
    )
    return file


def bench(fake: FakeEngine, config: Path, *arguments: str) -> list[str]:
    return ["--config", str(config), "--engine", str(fake.folder), *arguments]


def test_arms_are_compared_and_reported(
    fake_engine: FakeEngine, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUITES, "quick", TINY)
    fake_engine.script_server(token_ms=4, survival=[0.9, 0.8, 0.7, 0.6])
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    words = bench(fake_engine, config, "--workloads", "code,mixture", "--slots", "1,2", "--json")
    words += ["--html", str(page), "--png", str(picture)]
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    report = json.loads(result.stdout)
    assert set(report["failed"]) == {"pr17034", "live"}
    assert "live policy" in report["failed"]["live"]
    for arm in ("plain", "default", "best_static", "scalar"):
        assert set(report["arms"][arm]) == {"code", "mixture", "mixture/slots=2"}
        assert all(found.keys() >= FIGURES for found in report["arms"][arm].values())
    plain = report["arms"]["plain"]["code"]
    assert plain["ratio_vs_plain"] == pytest.approx(1.0)
    assert plain["low"] <= plain["tokens_per_second"] <= plain["high"]
    assert report["arms"]["default"]["code"]["ratio_vs_plain"] > 1.0
    assert set(report["overall"]) == {"default", "best_static", "scalar"}
    assert report["overall"]["default"]["plain"]["value"] > 1.0
    assert report["calibration_cost_vs_sweep"] > 0
    assert report["calibration_cost"]["sweep"]["triples"] >= 2
    assert report["models"]["slots"] == 2
    assert len(report["raw"]) == sum(cell["rows"] for cell in report["cells"].values())
    assert str(tmp_path) not in json.dumps(report["models"])
    assert_alone(page.read_text())
    assert sorted(tmp_path.glob("report-*.png"))
    kept = list((paths.cache() / "bench" / "results").glob("small-*.json"))
    assert [json.loads(one.read_text())["arms"] for one in kept] == [report["arms"]]
    assert not list((paths.cache() / "bench").glob("*.jsonl"))


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "object")
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]


def assert_alone(page: str) -> None:
    """Nothing is fetched from anywhere."""
    parser = _Links()
    parser.feed(page)
    assert all(link.startswith("data:image/png;base64,") for link in parser.found)
    assert "url(" not in page
    assert "@import" not in page


def test_an_interrupted_benchmark_goes_on_where_it_was(
    fake_engine: FakeEngine, config: Path, tmp_path: Path
) -> None:
    fake_engine.script_server(token_ms=6)
    words = bench(fake_engine, config, "--arms", "plain,default", "--workloads", "code,prose")
    words += ["--budget", "600", "--json"]
    program = [sys.executable, "-m", "autospec", "bench", *words]
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen(program, stdout=log, stderr=log, env=dict(os.environ))
        deadline = time.monotonic() + 120
        while len(rows := journalled()) < 2 and first.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 130, (tmp_path / "log").read_text()
    before = journalled()
    assert len(before) >= len(rows) >= 2
    second = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert second.returncode == 0, second.stderr
    assert "going on after" in second.stderr
    raw = json.loads(second.stdout)["raw"]
    assert raw[: len(before)] == before
    assert len(raw) > len(before)
    assert not journalled()


def journalled() -> list[dict[str, Any]]:
    files = list((paths.cache() / "bench").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [record for line in lines if (record := json.loads(line))["kind"] == "row"]


def test_without_plain_decoding_there_is_nothing_to_compare(
    fake_engine: FakeEngine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUITES, "quick", TINY)
    fake_engine.script_server(die_after=2)
    words = bench(fake_engine, config, "--arms", "plain,default", "--workloads", "code")
    with pytest.raises(ServeError, match="plain decoding cannot be served") as error:
        CliRunner().invoke(command, words, catch_exceptions=False)
    assert "goes on" in (error.value.hint or "")


def test_curves_are_replayed_with_recorded_rounds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    curves = json.loads((DATA / "seed_curves.json").read_text())["curves"]
    file = tmp_path / "curves.json"
    file.write_text(json.dumps({"curves": curves[:1]}))
    words = ["bench", "--replay", str(file)]
    for kind in ("same_weights", "one_layer_dropped"):
        words += ["--rounds", str(DATA / f"trace_draft_{kind}.jsonl")]
    assert main([*words, "--json"]) == 0
    *texts, mixture = json.loads(capsys.readouterr().out)["replayed"]
    assert len(texts) == 2
    assert all(one["chosen"] >= 0.97 * one["speedup"]["best_scalar"] for one in texts)
    assert all(one["chosen"] > 1.15 * one["speedup"]["pr17034"] for one in texts)
    assert mixture["ratio_vs_best_static"] > 1.03
    assert main(words) == 0
    assert "all of them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replay", "/missing"], "cannot be read"),
        (["--replay", str(DATA / "seed_curves.json")], "--rounds FILE"),
        (["--rounds", "/missing"], "needs --replay"),
        (["--demo", "good", "model"], "neither MODEL"),
        (["--slots", "0"], "between 1 and 64"),
        (["--depths", "x"], "is no number"),
        (["--depths", "-5"], "is no number"),
        (["--suite", "huge"], "huge"),
        (["--budget", "1"], "budget"),
    ],
)
def test_mistakes_are_usage_errors(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--arms", "plain,fast"], "no arm is called 'fast'"),
        (["--workloads", "poems"], "no workload is called 'poems'"),
        (["--prompts", "/missing.txt"], "cannot be read"),
        (["large"], "no model is called 'large'"),
    ],
)
def test_unknown_names_are_told_with_the_known_ones(
    fake_engine: FakeEngine, config: Path, words: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(command, bench(fake_engine, config, *words), catch_exceptions=False)
