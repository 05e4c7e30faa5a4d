"""Which processes are ours, so that no signal ever reaches a stranger.

A process is itself only by its number *and* its start time: numbers are used again. A tree is
known by a mark in the environment, which children inherit and cannot be confused with others'
(a process that clears its environment leaves the tree). Both are read from `/proc`; where there
is none, nothing is found.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autospec.hardware import files

MARK = "AUTOSPEC_CHILD"
_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
_ENVIRONMENT_BYTES = 1 << 22
_ROUND_SECONDS = 0.02


@dataclass(frozen=True, order=True)
class Identity:
    """`started`: clock ticks since the machine started, which no change of the clock moves."""

    pid: int
    started: int


def identify(pid: int) -> Identity | None:
    """Who has this number now; None for nobody, a zombie included."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in "ZX":
        return None
    return Identity(pid, int(fields[_STARTED]))


def lives(who: Identity) -> bool:
    return identify(who.pid) == who


def send(who: Identity, number: signal.Signals) -> bool:
    """Send a signal to that very process; False when it has gone or is not ours to signal."""
    try:
        descriptor = os.pidfd_open(who.pid)
    except OSError:
        return False
    try:
        # The descriptor holds on to whoever has the number now; it is looked at afterwards.
        if not lives(who):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def marked(mark: str) -> list[Identity]:
    """The processes under `mark` and under longer marks that begin with it."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for pid in _pids():
        who = identify(pid)
        if who is not None and _has(pid, wanted) and lives(who):
            found.append(who)
    return sorted(found)


def kill_marked(mark: str, within: float) -> list[Identity]:
    """SIGKILL all under `mark`, those they start meanwhile too; who is left after `within` s."""
    deadline = time.monotonic() + within
    while True:
        left = [who for who in marked(mark) if who.pid != os.getpid()]
        if not left or time.monotonic() > deadline:
            return left
        for who in left:
            send(who, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


def _pids() -> Iterator[int]:
    yield from (int(entry.name) for entry in _PROC.glob("[0-9]*") if entry.name.isdecimal())


def _stat(pid: int) -> list[str] | None:
    """The fields of `/proc/PID/stat` after the name, which may itself hold spaces and brackets."""
    fields = (files.text(_PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
    return fields if len(fields) > _STARTED and fields[_STARTED].isdecimal() else None


def _has(pid: int, variable: bytes) -> bool:
    try:
        with (_PROC / str(pid) / "environ").open("rb") as file:
            environment = file.read(_ENVIRONMENT_BYTES)
    except OSError:
        return False
    return any(entry.startswith(variable) for entry in environment.split(b"\0"))
