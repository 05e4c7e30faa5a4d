"""The control socket: one JSON line in, one JSON line out, then the connection closes.

The socket is a UNIX socket of mode 0600 in a folder of mode 0700: who may open it is who runs
the daemon. A lock file beside it, held for life, keeps a second daemon out.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, Any

from autospec import paths
from autospec.errors import AutospecError, DaemonNotRunning

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

_LIMIT = 1 << 16
_ANSWER_LIMIT = 16 << 20
_SECONDS = 5.0
_SYSTEM = Path("/run/autospec/control.sock")
_LONGEST_PATH = 107
"""Bytes that fit the address of a UNIX socket on Linux (unix(7))."""

_log = logging.getLogger(__name__)


def socket_path() -> Path:
    """Where the daemon listens. AutospecError when the path is too long for a socket."""
    path = paths.runtime() / "control.sock"
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise AutospecError(
            f"{path} is too long for a socket: at most {_LONGEST_PATH} bytes fit",
            hint="let XDG_RUNTIME_DIR name a folder with a shorter path",
        )
    return path


class ControlServer:
    """Answers on the control socket until `close`. One a user and machine."""

    def __init__(self, server: asyncio.Server, path: Path, lock: IO[str]) -> None:
        self._server = server
        self._path = path
        self._lock = lock

    @classmethod
    async def open(cls, handler: Handler) -> ControlServer:
        """Listen; AutospecError when another daemon already does, or nobody can."""
        path = socket_path()
        try:
            lock = _lock(path)
            try:
                return cls(await _listen(path, handler), path, lock)
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise AutospecError(
                f"cannot listen on {path}: {error}",
                hint="let XDG_RUNTIME_DIR name a folder that is yours",
            ) from error

    async def close(self) -> None:
        self._server.close()
        self._path.unlink(missing_ok=True)
        self._lock.close()


def _lock(path: Path) -> IO[str]:
    """Take the place of the only daemon; closing what this returns gives it back."""
    lock = (paths.private(path.parent) / "daemon.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise AutospecError(
            "another autospec daemon is running", hint="look at it with `autospec status`"
        ) from None
    return lock


async def _listen(path: Path, handler: Handler) -> asyncio.Server:
    """Listen on `path`. A socket that a killed daemon left there is removed by asyncio."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                line = await reader.readline()
            answer = await _answer(handler, line)
            async with asyncio.timeout(_SECONDS):
                writer.write(answer + b"\n")
                await writer.drain()
        except (ConnectionError, TimeoutError, ValueError):
            pass  # It went away, was too slow, or sent a line without an end.
        finally:
            writer.close()

    old_mask = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(serve, path, limit=_LIMIT)
    finally:
        os.umask(old_mask)


async def _answer(handler: Handler, line: bytes) -> bytes:
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise TypeError("not an object")
        return json.dumps(await handler(request), allow_nan=False).encode()
    except AutospecError as error:
        told = {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}
        return json.dumps(told).encode()
    except (ValueError, TypeError, RecursionError) as error:
        return json.dumps({"error": str(error)}).encode()
    except Exception as error:  # noqa: BLE001 - whoever asks is told, and the daemon goes on
        _log.exception("no answer to %.100r", line)
        return json.dumps({"error": f"a fault of autospec: {error!r}"}).encode()


def ask(request: dict[str, Any], *, patience: float = _SECONDS) -> dict[str, Any]:
    """Send `request` to the running daemon and return its answer, which may take `patience` s.

    DaemonNotRunning when nobody listens, AutospecError (with the exit code of what was wrong)
    when the daemon refuses.
    """
    for path in (socket_path(), _SYSTEM):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(patience)
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                continue
            except OSError as error:
                raise AutospecError(f"cannot reach the daemon at {path}: {error}") from error
            return _exchange(connection, request)
    raise DaemonNotRunning("no autospec daemon is running", hint="start one with `autospec serve`")


def _exchange(connection: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    received = bytearray()
    try:
        connection.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in received and len(received) < _ANSWER_LIMIT:
            if not (piece := connection.recv(1 << 16)):
                break
            received += piece
        answer = json.loads(received)
    except TimeoutError:
        raise AutospecError("the daemon did not answer in time") from None
    except (OSError, ValueError) as error:
        raise AutospecError(f"the daemon's answer was unreadable: {error}") from error
    if not isinstance(answer, dict):
        raise AutospecError("the daemon's answer was unreadable")
    if "error" in answer:
        refusal = AutospecError(str(answer["error"]), hint=answer.get("hint"))
        refusal.exit_code = int(answer.get("exit_code", refusal.exit_code))
        raise refusal
    return answer
