"""Running one of the engine's programs: arguments as a list, its own process group, no orphan.

A program started here dies with us: the kernel sends it SIGKILL when its parent thread ends
(prctl(2), PR_SET_PDEATHSIG), also when we were killed ourselves. What it starts in turn does
not; all of it bears a mark (see `tree`) by which it is found and ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import itertools
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autospec.engine.tree import MARK, Identity, identify, kill_marked
from autospec.engine.waiting import to_the_end

_PR_SET_PDEATHSIG = 1
_LINE_LIMIT = 1 << 16
_EXIT_POLL_SECONDS = 0.02
_SWEEP_SECONDS = 2.0

OUR_MARK = secrets.token_hex(8)
"""Begins the mark of everything that this process starts."""

_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with(parent: int) -> None:
    """In the child, between fork and exec: ask for SIGKILL when `parent` dies."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # It died before we asked.
            os._exit(1)


@dataclass(frozen=True)
class Program:
    """One started program. `identity` is None where the system does not tell (no `/proc`)."""

    process: asyncio.subprocess.Process
    mark: str
    identity: Identity | None

    @property
    def pid(self) -> int:
        return self.process.pid


async def start(
    argv: Sequence[str | Path],
    env: Mapping[str, str],
    *,
    merge_stderr: bool = False,
    descriptors: Sequence[int] = (),
) -> Program:
    """Start `argv` in a process group of its own, with pipes for stdout and stderr.

    With `merge_stderr` both streams arrive on stdout; `descriptors` are passed on under their
    numbers. OSError when it cannot be started.
    """
    mark = f"{OUR_MARK}.{next(_numbers)}."
    process = await asyncio.create_subprocess_exec(
        *map(str, argv),
        env={**env, MARK: mark},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if merge_stderr else asyncio.subprocess.PIPE,
        start_new_session=True,
        pass_fds=tuple(descriptors),
        preexec_fn=functools.partial(_die_with, os.getpid()),
        limit=_LINE_LIMIT,
    )
    return Program(process, mark, identify(process.pid))


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


def signal_group(program: Program, number: signal.Signals) -> None:
    """Send a signal to the whole process group that `start` made, while its leader lives."""
    process, identity = program.process, program.identity
    if process.returncode is not None or (identity and identify(process.pid) != identity):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _kill_group_left_behind(pid: int) -> None:
    """Kill what is left of the group of an ended program.

    No new process gets the number of a group that has members: one that has it is a stranger.
    """
    if not Path(f"/proc/{pid}").exists():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


async def exited(process: asyncio.subprocess.Process) -> int:
    """Wait until `process` has ended, whoever still holds its pipes; returns its exit status.

    `Process.wait` is woken only once the pipes are closed too (CPython 3.11), and a grandchild
    can hold them for ever.
    """
    while process.returncode is None:  # noqa: ASYNC110 - the event that there is comes too late
        await asyncio.sleep(_EXIT_POLL_SECONDS)
    return process.returncode


async def stop(program: Program, grace: float) -> int:
    """SIGTERM, wait `grace` seconds, SIGKILL; returns the exit status (negative: the signal).

    What the program left behind is killed too, in whatever group or session it hides.
    """
    process = program.process
    if process.returncode is None:
        signal_group(program, signal.SIGTERM)
        try:
            await asyncio.wait_for(exited(process), grace)
        except TimeoutError:
            signal_group(program, signal.SIGKILL)
    code = await exited(process)
    _kill_group_left_behind(process.pid)
    await asyncio.to_thread(kill_marked, program.mark, _SWEEP_SECONDS)
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

    program = await start(argv, env)
    process = program.process
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
        await to_the_end(stop(program, grace=1.0))
    return Finished(code, tuple(tail))
