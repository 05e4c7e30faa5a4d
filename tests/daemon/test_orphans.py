"""A new daemon ends what an earlier one left running, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervised import gone

from autospec.daemon import orphans
from autospec.daemon.orphans import Roster, take_over
from autospec.engine.process import OUR_MARK
from autospec.engine.tree import MARK, Identity, identify, lives, marked, send

pytestmark = pytest.mark.fault

OTHER = "0123456789abcdef"
SLEEPER = [sys.executable, "-ISc", "import time; time.sleep(3600)"]


@pytest.fixture
def folder(isolated: Path) -> Path:
    folder = isolated / "run"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def sleeper(started: list[subprocess.Popen[bytes]], mark: str | None) -> psutil.Process:
    env = {**os.environ, **({MARK: mark} if mark else {})}
    process = subprocess.Popen(SLEEPER, env=env, start_new_session=True)
    started.append(process)
    found = psutil.Process(process.pid)
    # Between fork and exec it still has our environment.
    while mark and not any(who.pid == process.pid for who in marked(mark)):
        time.sleep(0.01)
    return found


def leave(folder: Path, mark: object, children: object) -> None:
    (folder / "children.json").write_text(json.dumps({"mark": mark, "children": children}))


def entry(process: psutil.Process, socket: Path | None = None) -> dict[str, Any]:
    who = identify(process.pid)
    assert who is not None
    return {"pid": who.pid, "started": who.started, "socket": str(socket) if socket else None}


def test_an_orphan_and_all_under_it_are_ended_and_its_socket_removed(
    folder: Path, sleepers: list[subprocess.Popen[bytes]], isolated: Path
) -> None:
    import socket  # noqa: PLC0415

    child = sleeper(sleepers, f"{OTHER}.1.")
    grandchild = sleeper(sleepers, f"{OTHER}.1.")
    path, foreign = folder / "m-1.sock", isolated / "other.sock"
    for one in (path, foreign):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(one))
        listener.close()
    leave(folder, OTHER, [entry(child, path), entry(grandchild, foreign)])
    roster, said = take_over(folder)
    assert gone(child)
    assert gone(grandchild)
    assert not path.exists()
    assert foreign.exists(), "only sockets of our own folder are removed"
    assert len(said) == 2
    assert str(child.pid) in said[0] + said[1]
    roster.close()


def test_a_number_that_a_stranger_has_now_is_left_alone(
    folder: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    stranger = sleeper(sleepers, None)
    recycled = sleeper(sleepers, "fedcba9876543210.1.")
    leave(folder, OTHER, [entry(stranger), entry(recycled)])
    _, said = take_over(folder)
    assert not said
    assert not gone(stranger)
    assert not gone(recycled)


def test_no_signal_reaches_a_process_that_started_later_under_the_same_number(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    process = sleeper(sleepers, None)
    who = identify(process.pid)
    assert who is not None
    assert lives(who)
    before = Identity(who.pid, who.started - 1)
    assert not lives(before)
    assert not send(before, signal.SIGKILL)
    assert not gone(process)
    assert send(who, signal.SIGKILL)
    process.wait(10)
    assert not send(who, signal.SIGKILL)


def test_the_children_of_this_daemon_are_on_disk_and_private(folder: Path) -> None:
    roster, said = take_over(folder)
    assert not said
    who = Identity(4711, 99)
    roster.add(who, folder / "m-1.sock")
    file = folder / "children.json"
    document = json.loads(file.read_text())
    assert document["mark"] == OUR_MARK
    assert document["children"] == [
        {"pid": 4711, "started": 99, "socket": str(folder / "m-1.sock")}
    ]
    assert file.stat().st_mode & 0o777 == 0o600
    roster.remove(who)
    assert json.loads(file.read_text())["children"] == []
    roster.close()
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_full_keeps_no_child_from_starting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roster = Roster(folder)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(orphans.tempfile, "NamedTemporaryFile", full)
    roster.add(Identity(4711, 99), None)
    roster.remove(Identity(4711, 99))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"mark": "", "children": []}',
        '{"mark": "../../x", "children": [{"pid": 1}]}',
        '{"mark": 7}',
        '{"mark": "0123456789abcdef", "children": [{"pid": true, "started": 1, "socket": 3}, 7]}',
        '{"mark": "0123456789abcdef", "children": 5}',
        "\x00" * 100,
    ],
)
def test_a_file_that_makes_no_sense_is_as_good_as_none(folder: Path, text: str) -> None:
    (folder / "children.json").write_text(text)
    _, said = take_over(folder)
    assert not said


@given(st.binary(max_size=400))
def test_no_bytes_in_the_file_end_anything(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "children.json").write_bytes(data)
    _, said = take_over(folder)
    assert not said


def test_what_a_killed_parent_left_is_found_by_its_mark(
    folder: Path, sleepers: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """A wrapper that starts the engine as a child of its own: the death signal stops short."""
    code = f"""
        import asyncio, sys
        from pathlib import Path
        from autospec.daemon.orphans import take_over
        from autospec.engine import process
        async def main():
            roster, _ = take_over(Path({str(folder)!r}))
            wrapper = ["/bin/sh", "-c", "setsid sleep 3600 & sleep 3601 & wait"]
            program = await process.start(wrapper, {{"PATH": "/usr/bin:/bin"}})
            roster.add(program.identity, None)
            print(program.pid, flush=True)
            await asyncio.sleep(3600)
        asyncio.run(main())
    """
    daemon = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert daemon.stdout is not None
    wrapper = psutil.Process(int(daemon.stdout.readline()))
    while len(wrapper.children()) < 2:
        time.sleep(0.01)
    left = wrapper.children()
    daemon.kill()
    daemon.communicate()
    while not gone(wrapper):
        time.sleep(0.01)
    assert not any(map(gone, left)), "the kernel ends only what was started directly"
    _, said = take_over(folder)
    assert all(map(gone, left))
    assert len(said) == 2
