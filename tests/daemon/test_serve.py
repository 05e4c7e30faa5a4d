"""`autospec serve` with the fake engine: signals, orphans, exit codes, several models."""

from __future__ import annotations

import io
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from rich.console import Console
from served import Served, until
from supervised import gone, wrap
from told import model as made_up

from autospec.cli.app import main
from autospec.daemon.control import socket_path
from autospec.ui import logs
from autospec.ui.watch import Screen

if TYPE_CHECKING:
    from conftest import FakeEngine

    from autospec.demo.assets import DemoModels

pytestmark = pytest.mark.fault

Serve = Callable[..., Served]
PAIR = 'hf = "a/b"\ndraft_hf = "c/d"\ncontext = 2048\n'


@pytest.fixture
def write(tmp_path: Path, free_port: int) -> Callable[[str], Path]:
    """Write a configuration that listens on `free_port`."""

    def written(text: str) -> Path:
        path = tmp_path / "autospec.toml"
        path.write_text(f'[server]\nlisten = "127.0.0.1:{free_port}"\n{text}')
        return path

    return written


@pytest.fixture
def serve(tmp_path: Path, fake_engine: FakeEngine) -> Iterator[Serve]:
    """Start `autospec serve` on the fake engine."""
    started: list[Served] = []

    def start(*arguments: str, **env: str) -> Served:
        engine = ("--engine", str(fake_engine.folder))
        started.append(Served(tmp_path / "log", *engine, *arguments, **env))
        return started[-1]

    yield start
    for served in started:
        served.clean_up()


@pytest.fixture
def one(write: Callable[[str], Path]) -> tuple[str, ...]:
    """Arguments that serve one model called chat, without measuring."""
    path = write('[models.chat]\nhf = "a/b"\ncontext = 2048\n')
    return ("--config", str(path), "--no-calibrate")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_daemon_and_child(serve: Serve, one: tuple[str, ...], number: int):
    served = serve(*one)
    served.until("ready")
    child = served.child()
    assert served.end(number) == 0, served.output
    assert gone(child)
    assert not socket_path().exists()
    assert "Traceback" not in served.output


def test_a_killed_daemon_leaves_no_child_and_its_successor_takes_over(
    serve: Serve, one: tuple[str, ...]
):
    first = serve(*one)
    first.until("ready")
    child = first.child()
    first.end(signal.SIGKILL)
    until(lambda: gone(child))
    assert socket_path().exists()
    second = serve(*one)
    assert second.until("ready")["pid"] != child.pid
    assert second.end(signal.SIGTERM) == 0


def test_a_second_daemon_is_refused(serve: Serve, one: tuple[str, ...]):
    served = serve(*one)
    served.until("ready")
    second = serve(*one)
    assert second.process.wait(60) == 1
    assert "another autospec daemon is running" in second.output
    assert served.until("ready")


def test_a_second_signal_does_not_wait_for_the_request_under_way(
    serve: Serve, one: tuple[str, ...], fake_engine: FakeEngine, free_port: int
):
    fake_engine.script_server(hang="completion", ignore_sigterm=True)
    served = serve(*one)
    served.until("ready")
    child = served.child()
    with socket.create_connection(("127.0.0.1", free_port)) as client:
        client.sendall(
            b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
        )
        until(lambda: (served.model() or {"live": {}})["live"].get("busy"))
        served.process.send_signal(signal.SIGINT)
        served.until("draining")
        assert served.end(signal.SIGINT) == 0
    assert gone(child)


def test_models_have_ports_and_fates_of_their_own(
    serve: Serve, write: Callable[[str], Path], fake_engine: FakeEngine, free_port: int
):
    refuse = 'case "$*" in *ill/ill*) echo "error: invalid argument: x" >&2; exit 1;; esac'
    real = wrap(fake_engine, refuse)
    text = "".join(
        f'[models.{name}]\nhf = "{name}/{name}"\ncontext = 512\n' for name in ("one", "ill", "two")
    )
    text = f"front_door = false\n{text}"
    served = serve("--config", str(write(text)), "--no-calibrate", LLAMA_ARG_DRAFT_MAX="16")
    failed = served.until("failed", "ill")
    assert "invalid argument: x" in failed["reason"]
    for name, port in (("one", free_port), ("two", free_port + 2)):
        assert served.until("ready", name)["address"] == f"http://127.0.0.1:{port}"
        answer = httpx.post(f"http://127.0.0.1:{port}/completion", json={"prompt": "a"})
        assert answer.json()["content"]
    children = [served.child(name) for name in ("one", "two")]
    served.child("one").kill()
    until(lambda: (served.model("one") or {})["deaths"])
    assert served.child("two") == children[1]
    served.until("ready", "one")
    children.append(served.child("one"))
    starts = real.with_suffix(".starts.jsonl").read_text().splitlines()
    assert not any("LLAMA_ARG_DRAFT_MAX" in json.loads(start)["env"] for start in starts)
    assert "not passed on to llama-server: LLAMA_ARG_DRAFT_MAX" in served.output
    assert served.end(signal.SIGTERM) == 0, served.output
    assert all(gone(child) for child in children)


def test_status_tells_what_is_being_measured_and_a_stop_ends_that_too(
    serve: Serve,
    write: Callable[[str], Path],
    fake_engine: FakeEngine,
    capsys: pytest.CaptureFixture[str],
):
    fake_engine.script_bench(row_seconds=1)
    served = serve("--config", str(write(f"[models.chat]\n{PAIR}")))

    def measuring() -> dict[str, Any] | None:
        return (served.status() or {}).get("starting")

    starting = until(measuring, lambda: served.output)
    assert starting["model"] == "chat"
    assert starting["what"].startswith("target, depth 0")
    assert 0 < starting["left"] <= 120
    assert 0 <= starting["share"] < 1
    assert main(["status"]) == 0
    assert "measuring target, depth 0" in capsys.readouterr().out
    (bench,) = psutil.Process(served.process.pid).children()
    assert served.end(signal.SIGTERM) == 0, served.output
    assert gone(bench)
    assert "Traceback" not in served.output


def test_the_watch_screen_draws_what_a_daemon_tells(
    serve: Serve, write: Callable[[str], Path], fake_engine: FakeEngine
):
    text = f"[calibration]\nrehearse = false\n[models.chat]\n{PAIR}"
    served = serve("--config", str(write(text)))
    served.until("ready")
    report = served.status()
    assert report is not None
    assert len(report["models"][0]["costs"]["round_ms"]) > 1
    out = io.StringIO()
    screen = Screen(report)
    screen.take(report)
    Console(file=out, width=80).print(screen.drawn(80, 24, time.time()))
    assert "chat  ready" in out.getvalue()
    assert "ms a round by tokens drafted" in out.getvalue()
    assert "chat ready: 0 of 1 slots busy" in screen.line(time.time())


def test_a_calibration_that_fails_does_not_keep_the_model_from_being_served(
    serve: Serve, write: Callable[[str], Path], fake_engine: FakeEngine
):
    fake_engine.script_bench(exit={"after": 0, "code": 1})
    served = serve("--config", str(write(f"[models.chat]\n{PAIR}")))
    model = served.until("ready")
    assert model["setting"]["type"] == "off"
    assert "not calibrated" in served.output
    status = served.status()
    assert status is not None
    assert status["starting"] is None


def test_status_answers_while_a_model_loads(
    serve: Serve, one: tuple[str, ...], fake_engine: FakeEngine
):
    fake_engine.script_server(load_seconds=3600)
    served = serve(*one)
    served.until("loading")
    child = served.child()
    assert served.end(signal.SIGINT) == 0
    assert gone(child)


def test_the_page_to_look_at_tells_what_status_tells(
    serve: Serve, one: tuple[str, ...], free_port: int
) -> None:
    serve(*one).until("ready")
    page = f"http://127.0.0.1:{free_port}/autospec/"
    assert "<title>autospec</title>" in httpx.get(page).text
    (model,) = httpx.get(f"{page}status.json").json()["models"]
    assert (model["name"], model["state"]) == ("chat", "ready")
    like = made_up("chat")
    for part in (model, like), (model["live"], like["live"]), (model["setting"], like["setting"]):
        assert set(part[0]) == set(part[1]), "the page is tested with what a daemon tells"
    samples = until(lambda: httpx.get(f"{page}history.json").json()["samples"].get("chat"))
    assert samples[-1]["plain"] is None
    (explained,) = httpx.get(f"{page}explain.json?model=chat").json()["models"]
    assert explained["why_not"] == "there is no draft model, so there is nothing to choose"


def test_a_command_line_is_served_without_a_file(
    serve: Serve, models: DemoModels, fake_engine: FakeEngine, free_port: int
):
    pair = ("-m", str(models.target), "-md", str(models.draft))
    served = serve("--no-calibrate", "--", *pair, "-c", "512", "--port", str(free_port))
    name = until(lambda: (served.status() or {"models": []})["models"])[0]["name"]
    model = served.until("ready", name)
    assert model["address"] == f"http://127.0.0.1:{free_port}"
    argv = fake_engine.starts()[0]["argv"]
    assert argv[argv.index("--model") + 1] == str(models.target)
    assert argv[argv.index("--ctx-size") + 1] == "512"


# --- exit codes ---------------------------------------------------------------------------


@pytest.fixture
def run(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run `autospec serve` here and return its exit code and what it printed."""
    monkeypatch.setattr(logs, "to_stderr", lambda form, children: None)

    def ran(*arguments: str, engine: Path = fake_engine.folder) -> tuple[int, str]:
        code = main(["serve", "--engine", str(engine), "--no-calibrate", *arguments])
        return code, capsys.readouterr().err

    return ran


Run = Callable[..., tuple[int, str]]


def test_no_file_is_2(run: Run, tmp_path: Path):
    code, said = run("--config", str(tmp_path / "none.toml"))
    assert (code, "none.toml" in said) == (2, True)


def test_no_engine_is_3(run: Run, one: tuple[str, ...], tmp_path: Path):
    code, said = run(*one, engine=tmp_path / "nowhere")
    assert code == 3
    assert "nowhere" in said


def test_a_missing_model_is_4_and_nothing_is_started(
    run: Run, write: Callable[[str], Path], fake_engine: FakeEngine
):
    code, said = run("--config", str(write('[models.chat]\npath = "none.gguf"\n')))
    assert code == 2
    assert "none.gguf" in said
    assert not fake_engine.starts()


def test_models_that_all_fail_are_7(run: Run, one: tuple[str, ...], fake_engine: FakeEngine):
    log = ["error: invalid argument: --nope"]
    fake_engine.script_server(exit={"when": "start", "code": 1, "log": log})
    code, said = run(*one)
    assert code == 7
    assert "--nope" in said
    assert "logs" in said


def test_a_socket_that_cannot_be_is_said(
    run: Run, one: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, isolated: Path
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(isolated / ("x" * 100)))
    code, said = run(*one)
    assert code == 1
    assert "too long for a socket" in said
    assert main(["status"]) == 1
