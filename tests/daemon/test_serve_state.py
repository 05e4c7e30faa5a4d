"""The daemon and its state file: another life knows the one before, and trouble stops nothing."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from served import Served, until

from autospec import paths
from autospec.cli.app import main
from autospec.state.store import state_file

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

Start = Callable[[], Served]


@pytest.fixture
def start(tmp_path: Path, fake_engine: FakeEngine, free_port: int) -> Iterator[Start]:
    """Start `autospec serve` with one model called chat, without measuring."""
    file = tmp_path / "autospec.toml"
    listen = f'[server]\nlisten = "127.0.0.1:{free_port}"\n'
    file.write_text(f'{listen}[models.chat]\nhf = "a/b"\ncontext = 2048\n')
    words = ("--engine", str(fake_engine.folder), "--config", str(file), "--no-calibrate")
    started: list[Served] = []

    def serve() -> Served:
        started.append(Served(tmp_path / "log", *words))
        return started[-1]

    yield serve
    for served in started:
        served.clean_up()


def texts(served: Served, which: str = "events") -> list[str]:
    return [event["text"] for event in (served.status() or {which: []})[which]]


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["logs", "-n", "1000", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_next_life_knows_what_happened_even_after_a_kill(
    start: Start, capsys: pytest.CaptureFixture[str]
):
    first = start()
    first.until("ready")
    until(lambda: any(line["text"].startswith("ready") for line in logged(capsys)))
    first.end(signal.SIGKILL)
    second = start()
    second.until("ready")
    assert any(text.startswith("ready") for text in texts(second, "earlier_events"))
    assert len(texts(second)) < len(texts(second, "earlier_events")) + 10
    assert second.end(signal.SIGTERM) == 0
    lines = logged(capsys)
    assert sum(line["text"].startswith("ready") for line in lines) == 2
    assert {line["source"] for line in lines} == {"autospec", "llama-server"}
    assert lines[-1]["text"].startswith("stopped")


def test_a_state_file_that_cannot_be_used_is_said_and_the_model_is_served(start: Start):
    paths.private(paths.state())
    state_file().write_bytes(b"junk" * 5000)
    served = start()
    served.until("ready")
    assert sum("cannot be used" in text for text in texts(served)) == 1
    assert served.end(signal.SIGTERM) == 0
    assert state_file().is_file()


def test_a_full_disk_is_said_once_and_the_model_is_brought_back_all_the_same(start: Start):
    served = start()
    served.until("ready")
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (40_000, 40_000))
    for deaths in (1, 2):
        served.child().kill()
        until(lambda deaths=deaths: (served.model() or {"deaths": 0})["deaths"] == deaths)
        served.until("ready")
    until(lambda: any("cannot be used now" in text for text in texts(served)))
    assert sum("cannot be used now" in text for text in texts(served)) == 1
    assert served.end(signal.SIGTERM) == 0


def test_what_memory_did_not_allow_is_not_tried_again_in_the_next_life(
    start: Start, fake_engine: FakeEngine, tmp_path: Path
):
    file = tmp_path / "autospec.toml"
    file.write_text(file.read_text().replace("2048", "8192"))
    fake_engine.script_server(context_limit=4096)
    first = start()
    assert first.until("ready")["degraded"] == ["half the context"]
    assert first.end(signal.SIGTERM) == 0
    tries = len(fake_engine.starts())
    second = start()
    assert second.until("ready")["degraded"] == ["half the context"]
    assert len(fake_engine.starts()) == tries + 1
