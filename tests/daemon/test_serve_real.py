"""`autospec serve` on the real engine, with models small enough to load in a second."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from served import Served, until
from supervised import gone

from autospec.cli.app import main
from autospec.daemon.child_log import ChildLog

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = pytest.mark.real

TOKENS = 12


@pytest.fixture
def address(free_port: int) -> str:
    return f"127.0.0.1:{free_port}"


@pytest.fixture
def serve(
    tmp_path: Path, engine: Engine, models: DemoModels, address: str
) -> Iterator[Callable[..., Served]]:
    """Serve a pair whose numbers are pinned, so that it speculates without being measured."""
    config = tmp_path / "autospec.toml"
    started: list[Served] = []

    def start(listen: str = address) -> Served:
        config.write_text(
            f'[server]\nlisten = "{listen}"\n'
            f'[models.small]\npath = "{models.draft}"\ndraft = "{models.draft_three_dropped}"\n'
            'context = 512\nn_max = 3\nextra = ["--threads", "1"]\n'
        )
        arguments = ("--config", str(config), "--engine", str(engine.server), "--no-calibrate")
        started.append(Served(tmp_path / "log", *arguments))
        return started[-1]

    yield start
    for served in started:
        served.clean_up()


def answer(address: str) -> dict[str, Any]:
    asked = {"prompt": "The sun is", "n_predict": TOKENS, "temperature": 0}
    response = httpx.post(f"http://{address}/completion", json=asked, timeout=120)
    response.raise_for_status()
    body: dict[str, Any] = response.json()
    return body


def test_a_pair_is_served_watched_brought_back_and_ended(
    serve: Callable[..., Served], address: str, capsys: pytest.CaptureFixture[str]
):
    served = serve()
    served.until("ready", "small")
    first = answer(address)
    assert first["timings"]["predicted_n"] == TOKENS
    assert first["timings"]["draft_n"] > 0

    assert main(["status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    (model,) = status["models"]
    assert (model["state"], model["fault"], model["deaths"]) == ("ready", None, 0)
    assert model["setting"]["type"] == "draft-simple"
    assert model["setting"]["sources"]["n_max"] == "pinned"
    until(lambda: (served.model("small") or {})["live"]["rounds"], lambda: served.output)
    assert main(["status"]) == 0
    assert "small" in capsys.readouterr().out

    child = served.child("small")
    assert psutil.Process(served.process.pid).children() == [child]
    child.kill()
    until(lambda: (served.model("small") or {})["deaths"], lambda: served.output)
    model = served.until("ready", "small")
    assert model["pid"] != child.pid
    assert answer(address)["content"] == first["content"]

    child = served.child("small")
    assert served.end(signal.SIGINT) == 0, served.output
    assert gone(child)
    assert "Traceback" not in served.output
    assert "listening on" in (ChildLog.folder() / "small.log").read_text()


def test_on_a_socket_it_comes_back_too_and_does_not_survive_a_daemon_that_was_killed(
    serve: Callable[..., Served], isolated: Path
):
    served = serve(listen=f"unix:{isolated}/small.sock")
    served.until("ready", "small")
    first = served.child("small")
    first.kill()
    until(lambda: (served.model("small") or {})["deaths"], lambda: served.output)
    model = served.until("ready", "small")
    assert model["deaths"] == 1
    assert model["pid"] != first.pid
    child = served.child("small")
    served.end(signal.SIGKILL)
    until(lambda: gone(child))
