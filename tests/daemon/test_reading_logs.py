"""`autospec logs`: events and the children's lines, in order, and as they come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import until

from autospec.cli.app import main
from autospec.daemon.child_log import ChildLog
from autospec.daemon.events import Events
from autospec.daemon.reading_logs import Line, Logs
from autospec.errors import UsageError
from autospec.state.recorder import Recorder
from autospec.state.store import Store


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder(Store.open())
    yield recorder
    assert recorder.close()


@pytest.fixture
def events(recorder: Recorder) -> Events:
    events = Events()
    events.keep_in(recorder)
    return events


@pytest.fixture
def chat() -> Iterator[ChildLog]:
    log = ChildLog.open("chat")
    yield log
    log.close()


def follow(logs: Logs) -> list[str]:
    """What has come since the last look."""
    came = []

    def enough(_seconds: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        came.extend(line.text for line in logs.follow(enough))
    return came


def test_events_and_lines_are_shown_in_order_with_their_model(
    events: Events, chat: ChildLog, recorder: Recorder
):
    events.add("engine found")
    time.sleep(0.01)
    chat("loading the model")
    time.sleep(0.01)
    events.add("ready", model="chat", level="warning")
    assert recorder.flush()

    def last(lines: int, model: str | None = None) -> list[Line]:
        with Store.reading() as store, Logs(store, model) as logs:
            return logs.last(lines)

    assert [(line.model, line.source, line.level, line.text) for line in last(50)] == [
        (None, "autospec", "info", "engine found"),
        ("chat", "llama-server", "info", "loading the model"),
        ("chat", "autospec", "warning", "ready"),
    ]
    assert [line.text for line in last(1)] == ["ready"]
    assert last(0) == []
    assert [line.text for line in last(9, "chat")] == ["loading the model", "ready"]


def test_only_models_that_ran_here_can_be_named(events: Events, recorder: Recorder):
    events.add("ready", model="code")
    assert recorder.flush()
    with Store.reading() as store:
        assert Logs(store, "code")
        with pytest.raises(UsageError, match="chat") as error:
            Logs(store, "chat")
    assert "code" in (error.value.hint or "")


def test_what_comes_is_followed_through_every_turn_of_the_file(
    chat: ChildLog,
):
    chat("before")
    with Store.reading() as store, Logs(store) as logs:
        assert [line.text for line in logs.last(10)] == ["before"]
        assert follow(logs) == []
        chat._handler.maxBytes = 400
        wanted = []
        for turn in range(60):
            wanted.append(f"line {turn} {'x' * 20}")
            chat(wanted[-1])
            if turn % 7 == 0:
                assert follow(logs) == wanted
                wanted = []
        assert follow(logs) == wanted


def test_a_line_that_is_not_finished_is_waited_for(chat: ChildLog):
    path = ChildLog.folder() / "chat.log"
    with Store.reading() as store, path.open("ab") as file, Logs(store) as logs:
        logs.last(10)
        file.write(b"2026-11-30 12:00:00,000 half a ")
        file.flush()
        assert follow(logs) == []
        file.write(b"line\nno time\n")
        file.flush()
        assert follow(logs) == ["half a line", "no time"]


def test_a_child_that_starts_later_and_new_events_are_followed_too(
    events: Events, recorder: Recorder
):
    with Store.reading() as store, Logs(store) as logs:
        assert logs.last(10) == []
        late = ChildLog.open("late")
        late("here I am")
        events.add("ready", model="late")
        assert recorder.flush()
        assert sorted(follow(logs)) == ["here I am", "ready"]
        late.close()
        assert follow(logs) == []


def test_a_log_that_was_emptied_or_removed_stops_nothing(chat: ChildLog):
    path = ChildLog.folder() / "chat.log"
    with Store.reading() as store, Logs(store) as logs:
        chat("one")
        assert follow(logs) == ["one"]
        os.truncate(path, 0)
        assert follow(logs) == []
        chat("two")
        assert follow(logs) == ["two"]
        path.unlink()
        assert follow(logs) == []
        again = ChildLog.open("chat")
        again("three")
        again.close()
        assert follow(logs) == ["three"]


def test_escapes_and_junk_cannot_reach_the_terminal(chat: ChildLog, capsys: pytest.CaptureFixture):
    path = ChildLog.folder() / "chat.log"
    path.write_bytes(b"\x1b[2J\x00\xff junk\n" + b"9999-99-99 99:99:99,999 odd time\n")
    assert main(["logs"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x00" not in shown
    assert "odd time" in shown
    assert main(["logs", "chat", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["model"] for line in lines} == {"chat"}
    assert {line["source"] for line in lines} == {"llama-server"}


def test_a_machine_where_nothing_ran_shows_nothing_and_makes_nothing(
    isolated: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["logs"]) == 0
    assert capsys.readouterr().out == ""
    assert not (isolated / "state").exists()


def test_the_command_follows_until_it_is_interrupted(chat: ChildLog, tmp_path: Path):
    chat("before")
    out = tmp_path / "out"
    with out.open("wb") as file:
        reader = subprocess.Popen(
            [sys.executable, "-m", "autospec", "logs", "chat", "-f"], stdout=file
        )
    until(lambda: "chat> before\n" in out.read_text())
    chat("after")
    until(lambda: "chat> after\n" in out.read_text())
    reader.send_signal(2)
    assert reader.wait(30) == 130
