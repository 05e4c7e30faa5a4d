"""Running one of the engine's programs: arguments as a list, its own process group, no orphan.

A program started here dies with us: the kernel sends it SIGKILL when its parent thread ends
(prctl(2), PR_SET_PDEATHSIG), also when we were killed ourselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LINE_LIMIT = 1 << 16
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """In the child, between fork and exec: ask for SIGKILL when the parent dies."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


async def start(
    argv: Sequence[str | Path], env: Mapping[str, str], *, merge_stderr: bool = False
) -> asyncio.subprocess.Process:
    """Start `argv` in a process group of its own, with pipes for stdout and stderr.

    With `merge_stderr` both streams arrive on stdout. OSError when it cannot be started.
    """
    return await asyncio.create_subprocess_exec(
        *map(str, argv),
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if merge_stderr else asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=die_with_parent,
        limit=_LINE_LIMIT,
    )


async def each_line(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    """Call `take` with every line of `stream` until it ends; an endless line is cut in pieces."""
    while True:
        try:
            raw = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            if end.partial:
                take(end.partial.decode("utf-8", "replace").rstrip())
            return
        except asyncio.LimitOverrunError as overrun:
            raw = await stream.readexactly(overrun.consumed)
        take(raw.decode("utf-8", "replace").rstrip())


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to the whole process group that `start` made for `pid`."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


async def stop(process: asyncio.subprocess.Process, grace: float) -> int:
    """SIGTERM, wait `grace` seconds, SIGKILL; returns the exit status (negative: the signal)."""
    if process.returncode is None:
        signal_group(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), grace)
        except TimeoutError:
            signal_group(process.pid, signal.SIGKILL)
    code = await process.wait()
    signal_group(process.pid, signal.SIGKILL)
    return code


@dataclass(frozen=True)
class Finished:
    """How a program ended: `code` (negative: the signal) and the last lines of its stderr."""

    code: int
    tail: tuple[str, ...]


async def run(
    argv: Sequence[str | Path],
    env: Mapping[str, str],
    on_line: Callable[[str], None],
    *,
    on_start: Callable[[int], None] = lambda _pid: None,
    tail_lines: int = 40,
) -> Finished:
    """Run `argv` to its end, giving each line of stdout to `on_line`.

    Whatever happens (cancellation, an exception from `on_line`), the program is gone when
    this returns or raises.
    """
    tail: list[str] = []

    def keep(line: str) -> None:
        tail.append(line)
        del tail[:-tail_lines]

    process = await start(argv, env)
    on_start(process.pid)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as readers:
            readers.create_task(each_line(process.stdout, on_line))
            readers.create_task(each_line(process.stderr, keep))
        code = await process.wait()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        await asyncio.shield(stop(process, grace=1.0))
    return Finished(code, tuple(tail))
