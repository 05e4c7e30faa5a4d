"""Runs an engine's program for a moment to hear what it says of itself."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from autospec.engine.environment import child_environment
from autospec.engine.failures import explain_exit
from autospec.errors import EngineBroken

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_OUTPUT = 1 << 20
_REBUILD = "build llama.cpp on this machine, or take a build made for this CPU and system"
_BROKEN = frozenset({"illegal_instruction", "missing_library", "killed", "crash", "assertion"})


def probe(
    binary: Path, args: Sequence[str], timeout: float = 20.0
) -> subprocess.CompletedProcess[str]:
    """Run `binary` with `args` and return its exit code and output (stderr joined to stdout).

    At most `MAX_OUTPUT` bytes are read. Raises EngineBroken where the program cannot start,
    dies by a signal, lacks a library, never stops talking, or has not ended after `timeout`
    seconds; a plain exit code other than 0 is the caller's to judge.
    """
    environment, _ = child_environment(os.environ, {})
    try:
        process = subprocess.Popen(
            [binary, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise _cannot_start(binary, error) from error
    asked = f"`{binary} {' '.join(args)}`"
    with process:
        try:
            output = _read(process, asked, time.monotonic() + timeout)
            process.wait(timeout)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise EngineBroken(
                f"{asked} did not end within {timeout:g} seconds",
                hint="run it by hand; a GPU driver that hangs is a common reason",
            ) from None
        finally:
            if process.returncode is None:
                _kill_group(process)
    text = output.decode("utf-8", "replace")
    cause = explain_exit(process.returncode, text.splitlines()[-50:])
    if cause.kind in _BROKEN:
        raise EngineBroken(f"{binary}: {cause.sentence}", hint=_REBUILD)
    return subprocess.CompletedProcess([str(binary), *args], process.returncode, text, "")


def _read(process: subprocess.Popen[bytes], asked: str, deadline: float) -> bytes:
    assert process.stdout is not None
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > MAX_OUTPUT:
                raise EngineBroken(
                    f"{asked} printed more than {MAX_OUTPUT >> 20} MiB",
                    hint="check that this file is llama.cpp's program",
                )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the program and what it started; not yet reaped, so its number is still its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _cannot_start(binary: Path, error: OSError) -> EngineBroken:
    if error.errno == errno.ENOEXEC:
        return EngineBroken(f"{binary} is no program for this machine's processor", hint=_REBUILD)
    if error.errno in (errno.EACCES, errno.EPERM):
        return EngineBroken(
            f"{binary} may not be executed",
            hint=f"chmod +x {binary}, and check that its file system is not mounted noexec",
        )
    if error.errno == errno.ENOENT and binary.exists():
        return EngineBroken(
            f"{binary} asks for a program loader that this system does not have", hint=_REBUILD
        )
    return EngineBroken(f"{binary} cannot be started: {error.strerror}")
