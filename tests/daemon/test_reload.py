"""A new configuration while models are served: by signal and by the control socket."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from served import Served, until
from supervised import gone

from autospec.daemon.control import ask
from autospec.errors import AutospecError

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault

CHAT = '[models.chat]\nhf = "a/b"\ncontext = 2048\n'
CODE = '[models.code]\nhf = "c/d"\ncontext = 2048\n'
LATE = '[models.late]\nhf = "e/f"\ncontext = 2048\n'


class Desk:
    """A daemon and the file that it serves."""

    def __init__(self, folder: Path, engine: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._path = folder / "autospec.toml"
        self._head = f'[server]\nlisten = "127.0.0.1:{port}"\n'
        self._arguments = ("--engine", str(engine), "--config", str(self._path))
        self._log = folder / "log"
        self.served: Served | None = None

    def write(self, text: str) -> None:
        self._path.write_text(self._head + text)

    def serve(self, text: str, *more: str) -> Served:
        self.write(text)
        self.served = Served(self._log, *self._arguments, *more)
        return self.served

    def completion(self, model: str, path: str = "/v1/completions") -> httpx.Response:
        asked = {"model": model, "prompt": "a"}
        return httpx.post(f"{self.url}{path}", json=asked, timeout=60)


@pytest.fixture
def desk(tmp_path: Path, fake_engine: FakeEngine, free_port: int) -> Iterator[Desk]:
    desk = Desk(tmp_path, fake_engine.folder, free_port)
    yield desk
    if desk.served is not None:
        desk.served.clean_up()


def reload() -> dict[str, Any]:
    return ask({"op": "reload"}, patience=240)


def events(served: Served) -> list[str]:
    return [event["text"] for event in (served.status() or {"events": []})["events"]]


def test_a_bad_file_changes_nothing_and_is_said(desk: Desk) -> None:
    served = desk.serve(CHAT, "--no-calibrate")
    child = served.until("ready")["pid"]
    desk.write(CHAT.replace("context", "contxt"))
    with pytest.raises(AutospecError, match=r"autospec.toml:5.*contxt"):
        reload()
    served.process.send_signal(signal.SIGHUP)
    until(lambda: any("not reloaded" in text for text in events(served)), lambda: served.output)
    assert served.until("ready")["pid"] == child
    assert desk.completion("chat").status_code == 200


def test_only_what_changed_is_restarted(desk: Desk) -> None:
    served = desk.serve(CHAT + CODE, "--no-calibrate")
    children = {name: served.until("ready", name)["pid"] for name in ("chat", "code")}
    desk.write(CHAT.replace("2048", "4096") + CODE)
    answer = reload()
    assert answer["models"] == {"chat": "restarted"}
    until(lambda: served.until("ready", "chat")["pid"] != children["chat"])
    assert served.until("ready", "code")["pid"] == children["code"]


def test_a_model_comes_and_another_goes(desk: Desk) -> None:
    served = desk.serve(CHAT + CODE, "--no-calibrate")
    served.until("ready")
    child = served.child()
    assert desk.completion("late").status_code == 404
    desk.write(CODE + LATE)
    assert reload()["models"] == {"late": "new", "chat": "gone"}
    served.until("ready", "late")
    assert desk.completion("late").status_code == 200
    missing = desk.completion("chat")
    assert missing.status_code == 404
    assert "late" in missing.json()["error"]["message"]
    until(lambda: gone(child))


def test_nothing_new_restarts_nothing(desk: Desk) -> None:
    served = desk.serve(CHAT, "--no-calibrate")
    child = served.until("ready")["pid"]
    assert reload()["text"] == "reloaded; nothing changed"
    assert served.until("ready")["pid"] == child


def test_requests_find_the_door_at_its_new_address(desk: Desk, tmp_path: Path) -> None:
    served = desk.serve(CHAT, "--no-calibrate")
    child = served.until("ready")["pid"]
    socket = tmp_path / "door.sock"
    (tmp_path / "autospec.toml").write_text(f'[server]\nlisten = "unix:{socket}"\n{CHAT}')
    reload()
    transport = httpx.HTTPTransport(uds=str(socket))
    with httpx.Client(transport=transport, base_url="http://localhost") as client:
        assert client.post("/v1/completions", json={"prompt": "a"}).status_code == 200
    with pytest.raises(httpx.ConnectError):
        desk.completion("chat")
    assert served.until("ready")["pid"] == child


def test_a_reload_while_it_measures_is_done_afterwards(desk: Desk, fake_engine: FakeEngine) -> None:
    fake_engine.script_bench(row_seconds=0.5)
    served = desk.serve(CHAT + 'draft_hf = "e/f"\n[calibration]\nbudget = 4\nrehearse = false\n')
    until(lambda: (served.status() or {}).get("starting"), lambda: served.output)
    desk.write(CODE)
    assert reload()["models"] == {"code": "new", "chat": "gone"}
    served.until("ready", "code")
    assert served.end(signal.SIGTERM) == 0, served.output


def test_a_change_that_does_not_come_up_is_taken_back(desk: Desk, fake_engine: FakeEngine) -> None:
    served = desk.serve(CHAT, "--no-calibrate")
    served.until("ready")
    log = ["error: invalid argument: --nope"]
    fake_engine.script_server(exit={"when": "start", "code": 1, "log": log})
    desk.write(CHAT.replace("2048", "4096"))
    reload()
    until(lambda: any("back to the one before" in text for text in events(served)))
    fake_engine.script_server()
    child = served.until("ready")["pid"]
    assert desk.completion("chat").status_code == 200
    (argv,) = (start["argv"] for start in fake_engine.starts() if start["pid"] == child)
    assert "2048" in argv


def test_a_command_line_has_nothing_to_reload(desk: Desk, fake_engine: FakeEngine) -> None:
    served = desk.served = Served(
        desk._log, "--engine", str(fake_engine.folder), "--no-calibrate", "--", "-hf", "a/b",
        "--port", desk.url.rpartition(":")[2],
    )  # fmt: skip
    until(lambda: (served.status() or {"models": []})["models"])
    with pytest.raises(AutospecError, match="there is no file"):
        reload()


@pytest.fixture
def spoken(desk: Desk) -> Callable[[dict[str, Any]], dict[str, Any]]:
    desk.serve(CHAT, "--no-calibrate").until("ready")
    return ask


def test_an_unknown_model_cannot_be_switched_off(
    spoken: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    with pytest.raises(AutospecError, match="no model is called 'chit'"):
        spoken({"op": "off", "model": "chit"})
    assert spoken({"op": "off", "model": "chat"})["ok"] is True
    assert spoken({"op": "on", "model": "chat"})["ok"] is True
