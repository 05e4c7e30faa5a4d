"""What the engine says of itself: whether it speculates, what it refuses, what it counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf_writer as w
import httpx
import psutil
import pytest
from engines import recorded
from served import Served, until

from autospec.cli.app import main
from autospec.engine.arguments import server_argv
from autospec.engine.launch import Endpoint, Launch, Speculation
from autospec.errors import EngineError

if TYPE_CHECKING:
    from conftest import FakeEngine

    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = pytest.mark.case

BUILDS = ("draft-8600", "spec-draft-9093", "spec-type-11434")


@pytest.fixture
def serve(tmp_path: Path, free_port: int) -> Iterator[Callable[..., Served]]:
    """Serve `models` with `engine`, its lines of configuration added."""
    started: list[Served] = []

    def start(engine: Path, target: Path, draft: Path, *lines: str) -> Served:
        config = tmp_path / "autospec.toml"
        table = ["[models.chat]", f'path = "{target}"', f'draft = "{draft}"', "context = 512"]
        head = [f'[server]\nlisten = "127.0.0.1:{free_port}"']
        config.write_text("\n".join([*head, *table, *lines]) + "\n")
        arguments = ("--config", str(config), "--engine", str(engine), "--no-calibrate")
        started.append(Served(tmp_path / "log", *arguments))
        return started[-1]

    yield start
    for served in started:
        served.clean_up()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    target = w.write(tmp_path / "t.gguf", w.gguf(w.pairs(), data=4096))
    return target, w.write(tmp_path / "d.gguf")


def complete(served: Served, tokens: int = 12) -> dict[str, Any]:
    address = (served.model() or {})["address"]
    asked = {"prompt": "The sun is", "n_predict": tokens, "temperature": 0}
    body: dict[str, Any] = httpx.post(f"{address}/completion", json=asked, timeout=120).json()
    return body


# --- a draft model given, and nothing speculates ------------------------------------------


@pytest.mark.parametrize("build", BUILDS)
def test_a_launch_that_speculates_names_type_and_every_parameter(build: str):
    able = recorded(build)
    launch = Launch("m", Path("t.gguf"), draft=Path("d.gguf"))
    argv = server_argv(able, launch, Speculation(("draft-simple",), 7, 1, 0.3), Endpoint(port=1))
    for parameter, value in (("n_max", "7"), ("n_min", "1"), ("p_min", "0.3")):
        name = able.capabilities.name_of(parameter)
        assert name is not None
        assert argv[argv.index(name) + 1] == value
    if able.capabilities.generation == "spec-type":
        assert argv[argv.index("--spec-type") + 1] == "draft-simple"
    assert "d.gguf" in argv


def test_a_server_that_should_speculate_and_does_not_shows_why(
    fake_engine: FakeEngine,
    serve: Callable[..., Served],
    files: tuple[Path, Path],
    capfd: pytest.CaptureFixture[str],
):
    fake_engine.script_server(speculation="off")
    served = serve(fake_engine.server, *files, "n_max = 3")
    served.until("ready")
    model = until(
        lambda: (found := served.model()) and found["fault"] and found, lambda: served.output
    )
    assert model["fault"].startswith("llama-server serves without speculation: ")
    assert "draft model vocab must match" in model["fault"]
    assert main(["status"]) == 0
    assert "without speculation" in " ".join(capfd.readouterr().out.split())
    assert main(["doctor", "--json", "--engine", str(fake_engine.server)]) in (0, 1)
    findings = json.loads(capfd.readouterr().out)["findings"]
    assert any("without speculation" in one["sentence"] for one in findings)


@pytest.mark.real
def test_on_the_real_engine_the_first_completion_shows_that_it_speculates(
    engine: Engine, models: DemoModels, serve: Callable[..., Served]
):
    lines = ("n_max = 3", 'extra = ["--threads", "1"]')
    served = serve(engine.server, models.draft, models.draft_three_dropped, *lines)
    served.until("ready")
    assert complete(served)["timings"]["draft_n"] > 0
    model = until(
        lambda: (found := served.model()) and found["live"]["rounds"] and found,
        lambda: served.output,
    )
    assert model["fault"] is None
    slots = httpx.get(f"{model['address']}/slots", timeout=30).json()
    assert all(slot["speculative"] for slot in slots)


# --- an engine update removes flags -------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (["--draft-p-split", "0.1"], ["--draft-p-split"]),
        (["--thread", "4"], ["does not know --thread", "--threads"]),
        (["--defrag-thold", "0.1"], ["does not know --defrag-thold"]),
    ],
)
def test_an_argument_that_the_build_does_not_know_is_refused_before_a_start(
    extra: list[str],
    says: list[str],
    fake_engine: FakeEngine,
    files: tuple[Path, Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
):
    config = tmp_path / "autospec.toml"
    config.write_text(f'[models.chat]\npath = "{files[0]}"\nextra = {json.dumps(extra)}\n')
    arguments = ["serve", "--config", str(config), "--engine", str(fake_engine.server)]
    assert main(arguments) == 2
    said = capfd.readouterr().err
    assert all(word in said for word in says), said
    assert fake_engine.starts() == []


@pytest.mark.parametrize(("flag", "option"), [("--draft-max", "n_max"), ("--draft-min", "n_min")])
def test_a_saved_recipe_with_a_removed_flag_is_translated(
    flag: str, option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    recipe = f"llama-server -m t.gguf -md d.gguf {flag} 5 --draft-p-min 0.4 -c 512"
    (tmp_path / "t.gguf").touch()
    (tmp_path / "d.gguf").touch()
    assert main(["import", recipe]) == 0
    told = capfd.readouterr()
    assert flag not in told.out
    assert f"{option} 5" in told.err or f"{option} = 5" in told.out


@pytest.mark.real
@pytest.mark.parametrize("flag", ["--draft-max", "--draft-min", "--draft"])
def test_the_real_engines_own_words_come_with_a_flag_that_it_removed(engine: Engine, flag: str):
    from autospec.engine.arguments import unknown_extra  # noqa: PLC0415

    (found,) = unknown_extra(engine, [flag, "8"])
    assert found.argument == flag
    assert found.advice is not None
    assert "removed" in found.advice
    assert "--spec-draft-n-" in found.advice


def test_an_engine_that_refuses_its_command_line_is_not_started_again_and_again(
    fake_engine: FakeEngine, serve: Callable[..., Served], files: tuple[Path, Path]
):
    fate = {"when": "start", "code": 1, "log": ["error: invalid argument: --parallel"]}
    fake_engine.script_server(exit=fate)
    served = serve(fake_engine.server, *files, "n_max = 3")
    assert served.process.wait(60) == 7
    assert "refused its command line: error: invalid argument: --parallel" in served.output
    assert len(fake_engine.starts()) == 1


def test_a_build_that_lacks_the_type_is_refused_with_what_it_has():
    launch = Launch("m", Path("t.gguf"), draft=Path("d.gguf"))
    wanted = Speculation(("draft-eagle3",), 3)
    with pytest.raises(EngineError, match="no speculation type draft-eagle3") as caught:
        server_argv(recorded("draft-8600"), launch, wanted, Endpoint(port=1))
    assert "draft-simple" in str(caught.value.hint)


# --- rates read zero ----------------------------------------------------------------------


@pytest.mark.real
def test_a_second_scraper_changes_no_figure_on_the_real_engine(
    engine: Engine, models: DemoModels, serve: Callable[..., Served]
):
    lines = ("n_max = 3", 'extra = ["--threads", "1"]')
    served = serve(engine.server, models.draft, models.draft_three_dropped, *lines)
    model = served.until("ready")
    counted = 0
    for _ in range(3):
        for _ in range(5):
            httpx.get(f"{model['address']}/metrics", timeout=30).raise_for_status()
        counted += complete(served)["timings"]["predicted_n"]
    live = until(
        lambda: (now := (served.model() or {})["live"]) and now["tokens"] >= counted and now,
        lambda: served.output,
    )
    assert live["tokens"] == counted
    assert live["mean_rate"] > 0


def test_a_counter_that_goes_down_is_another_server_and_no_negative_rate(
    fake_engine: FakeEngine, serve: Callable[..., Served], files: tuple[Path, Path]
):
    served = serve(fake_engine.server, *files, "n_max = 3")
    served.until("ready")
    complete(served)
    until(lambda: (served.model() or {})["live"]["tokens"], lambda: served.output)
    psutil.Process((served.model() or {})["pid"]).kill()
    until(lambda: (served.model() or {})["deaths"], lambda: served.output)
    served.until("ready")
    live = (served.model() or {})["live"]
    assert live["tokens"] == 0
    assert live["mean_rate"] is None
    complete(served)
    live = until(
        lambda: (now := (served.model() or {})["live"]) and now["tokens"] and now,
        lambda: served.output,
    )
    assert live["mean_rate"] > 0
