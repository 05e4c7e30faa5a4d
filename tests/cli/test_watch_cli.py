"""`autospec status --watch` on a real terminal: drawn in place, and the terminal given back."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from autospec.daemon.control import ControlServer

PATIENCE = 60.0
LIVE: dict[str, Any] = {
    "busy": 1, "slots": 2, "depth": 312.0, "rate": 41.25, "tokens": 1200, "rounds": 300,
    "drafted": 1100, "acceptance": 0.8, "by_position": [{"position": 1, "share": 0.9}],
    "gain_predicted": 1.5, "gain_measured": None,
}  # fmt: skip
REPORT: dict[str, Any] = {
    "version": "0.1.0",
    "daemon": {"pid": 1, "for_seconds": 60.0, "config": "a.toml"},
    "engine": {"version": "1", "applier": {"name": "scalar", "why": ""}},
    "starting": None,
    "events": [{"at": 0.0, "level": "info", "model": "chat", "text": "keep: nothing to gain"}],
    "models": [
        {
            "name": "chat", "state": "ready", "for_seconds": 5.0, "fault": None, "reason": "",
            "setting": {"type": "draft-simple", "n_max": 6, "n_min": 0, "p_min": 0.4,
                        "sources": {}, "live": False},
            "live": LIVE,
            "costs": {"round_ms": [60.0, 70.0, 90.0, 80.0, 100.0]},
        }
    ],
}  # fmt: skip


@pytest.fixture
def daemon() -> Iterator[None]:
    """A daemon that answers with REPORT."""
    began, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def answer(_request: dict[str, Any]) -> dict[str, Any]:
        return REPORT

    async def serve() -> None:
        control = await ControlServer.open(answer)
        began.set()
        await ended.wait()
        await control.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert began.wait(PATIENCE)
    yield
    loop.call_soon_threadsafe(ended.set)
    thread.join()
    loop.close()


def test_it_draws_in_place_and_gives_the_terminal_back(daemon: None) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "autospec", "status", "--watch"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    deadline = time.monotonic() + PATIENCE
    while seen.count(b"accepted by position") < 3:
        assert time.monotonic() < deadline, seen
        seen += os.read(ours, 1 << 16)
    process.send_signal(signal.SIGINT)
    while True:
        try:
            seen += os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
    assert process.wait(PATIENCE) == 130
    os.close(ours)
    text = seen.decode()
    assert text.count("\x1b[?1049h") == 1
    assert text.index("\x1b[?1049l") > text.rindex("accepted by position")
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "\x1b[2J" not in text.partition("accepted by position")[2]
    assert "chat" in text
    assert "Traceback" not in text
    assert not re.search("38;[25];", text)
