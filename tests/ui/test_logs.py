"""The daemon's log in each of its forms."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.daemon.child_log import ChildLog
from autospec.daemon.events import Events
from autospec.errors import ServeError
from autospec.ui import logs
from autospec.ui.logs import CHILD, Form, Journal, entry, natural_form, told

if TYPE_CHECKING:
    from autospec.daemon.events import Level

Attach = Callable[..., io.StringIO]


@pytest.fixture
def attach() -> Iterator[Attach]:
    """Write the log in a form to what this returns."""
    log, attached = logging.getLogger("autospec"), []
    before = log.level, logging.getLogger(CHILD).level

    def attached_to(form: Form, *, children: bool = False) -> io.StringIO:
        out = io.StringIO()
        attached.append(logs.handler(form, out))
        log.addHandler(attached[-1])
        log.setLevel(logging.INFO)
        logging.getLogger(CHILD).setLevel(logging.INFO if children else logging.CRITICAL)
        return out

    yield attached_to
    for one in attached:
        log.removeHandler(one)
        one.close()
    log.setLevel(before[0])
    logging.getLogger(CHILD).setLevel(before[1])


@pytest.fixture
def journald(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """journald's end of its socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(10)
        listening.bind(f"{isolated}/journal")
        monkeypatch.setattr(Journal, "place", f"{isolated}/journal")
        yield listening


def read(datagram: bytes) -> dict[str, str]:
    """The fields of an entry, as journald reads them."""
    fields = {}
    while datagram:
        line, _, datagram = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(datagram[:8], "little")
            value, datagram = datagram[8 : 8 + size], datagram[8 + size + 1 :]
        fields[name.decode()] = value.decode()
    return fields


def test_a_person_reads_time_level_model_and_words(attach: Attach) -> None:
    out = attach(Form.HUMAN)
    Events().add("it died", model="chat", level="warning")
    assert out.getvalue().endswith("WARNING chat: it died\n")
    assert out.getvalue()[:4].isdigit()


def test_a_program_reads_one_object_a_line(attach: Attach) -> None:
    out = attach(Form.JSON)
    Events().add("it died\nat once", model="chat", level="warning")
    Events().add("stopping", level="info")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first.pop("at").endswith("+00:00")
    assert first == {
        "level": "warning",
        "model": "chat",
        "source": "autospec",
        "text": "it died at once",
    }
    assert second["model"] is None


def test_a_fault_of_ours_carries_its_traceback(attach: Attach, journald: socket.socket) -> None:
    out = attach(Form.JSON)
    attach(Form.JOURNAL)
    try:
        raise KeyError("lost")
    except KeyError:
        logging.getLogger("autospec.daemon").exception("a fault")
    (line,) = out.getvalue().splitlines()
    assert "KeyError: 'lost'" in json.loads(line)["traceback"]
    assert "KeyError: 'lost'" in read(journald.recv(1 << 16))["MESSAGE"]


@pytest.mark.parametrize(("level", "priority"), [("info", "6"), ("warning", "4"), ("error", "3")])
def test_the_journal_gets_fields(
    attach: Attach, journald: socket.socket, level: Level, priority: str
) -> None:
    attach(Form.JOURNAL)
    Events().add("ready", model="chat", level=level)
    assert read(journald.recv(1 << 16)) == {
        "MESSAGE": "chat: ready",
        "PRIORITY": priority,
        "SYSLOG_IDENTIFIER": "autospec",
        "AUTOSPEC_SOURCE": "autospec",
        "AUTOSPEC_MODEL": "chat",
    }


def test_without_journald_levels_are_prefixes(
    attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "place", "/no/such/socket")
    out = attach(Form.JOURNAL)
    Events().add("ready", model="chat")
    assert out.getvalue() == "<6>chat: ready\n"
    assert told("error: a\n  try: b", logging.ERROR, Form.JOURNAL) == "<3>error: a\n<3>  try: b"
    assert told("error: a", logging.ERROR, Form.HUMAN) == "error: a"


@pytest.mark.parametrize("form", list(Form))
def test_lines_of_a_child_carry_its_name_and_come_only_when_asked_for(
    attach: Attach, form: Form, journald: socket.socket
) -> None:
    out = attach(form, children=True)
    child = ChildLog.open("chat")
    child("main: server is listening\x1b[0m")
    if form is Form.JOURNAL:
        fields = read(journald.recv(1 << 16))
        assert (fields["AUTOSPEC_MODEL"], fields["AUTOSPEC_SOURCE"]) == ("chat", "llama-server")
        assert fields["MESSAGE"] == "chat | main: server is listening [0m"
    elif form is Form.JSON:
        said: dict[str, Any] = json.loads(out.getvalue())
        assert (said["model"], said["source"]) == ("chat", "llama-server")
    else:
        assert out.getvalue().endswith("chat | main: server is listening [0m\n")
    quiet = attach(form)
    child("another line")
    child.close()
    assert quiet.getvalue() == ""


def test_the_journal_is_known_by_what_stderr_is_not_by_the_variable_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryFile("w") as stream:
        assert natural_form(stream) is Form.HUMAN
        there = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino}")
        assert natural_form(stream) is Form.JOURNAL
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino + 1}")
        assert natural_form(stream) is Form.HUMAN
        for odd in ("", ":", "8:", "x" * 5000):
            monkeypatch.setenv("JOURNAL_STREAM", odd)
            assert natural_form(stream) is Form.HUMAN
    assert natural_form(io.StringIO()) is Form.HUMAN


def test_in_json_the_last_word_is_json_too(attach: Attach) -> None:
    out = attach(Form.JSON)
    with pytest.raises(SystemExit) as left, logs.errors_as(Form.JSON):
        raise ServeError("nothing came up", hint="look there")
    assert left.value.code == ServeError.exit_code
    assert json.loads(out.getvalue())["text"] == "nothing came up (look there)"
    with pytest.raises(ServeError), logs.errors_as(Form.HUMAN):
        raise ServeError("nothing came up")


@given(st.lists(st.tuples(st.sampled_from(["MESSAGE", "AUTOSPEC_MODEL", "A"]), st.text())))
def test_any_text_arrives_as_it_was(fields: list[tuple[str, str]]) -> None:
    whole = dict(fields)
    text = {name: value.encode("utf-8", "replace").decode() for name, value in whole.items()}
    assert read(entry(whole.items())) == text
