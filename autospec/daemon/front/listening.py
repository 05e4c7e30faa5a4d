"""One address where clients come in: sockets, connections and what HTTP itself has to refuse."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import resource
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from autospec.config.values import Address
from autospec.errors import ServeError

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_log = logging.getLogger(__name__)

_BACKLOG = 512
_IDLE_SECONDS = 75.0
_LINGER_SECONDS = 5.0
_LONGEST_LINE = 16 << 10
_MOST_HEADERS = 128
_READ = 1 << 16
_PROBE_SECONDS = 2.0
_OWN_DESCRIPTORS = 64
_MOST_CONNECTIONS = 8192

_FULL = json.dumps(
    {"error": {"message": "too many connections", "type": "server_error", "code": "busy"}}
).encode()
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


def most_connections() -> int:
    """How many clients this process has descriptors for: each may need one for a child and one
    for a file."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(8, min(_MOST_CONNECTIONS, (limit - _OWN_DESCRIPTORS) // 3))


class Listener:
    """An open address. `close` stops new connections, `cut` ends those that are there."""

    def __init__(self, address: Address, web_server: web.Server) -> None:
        self._address = address
        self._web = web_server
        self._socket: asyncio.Server | None = None

    @classmethod
    async def open(cls, address: Address, handler: Handler, full: Callable[[], bool]) -> Self:
        """ServeError where one cannot listen there. While `full`, clients are turned away."""
        loop = asyncio.get_running_loop()
        # A client that leaves takes its request with it.
        web_server = web.Server(handler, handler_cancellation=True)
        self = cls(address, web_server)

        def connect() -> asyncio.Protocol:
            return _Full() if full() else _Connection(web_server, loop)

        try:
            if address.socket is not None:
                await _make_way(address.socket)
                self._socket = await loop.create_unix_server(
                    connect, str(address.socket), backlog=_BACKLOG
                )
            else:
                self._socket = await loop.create_server(
                    connect, address.host, address.port, backlog=_BACKLOG
                )
        except (OSError, UnicodeError) as error:
            raise ServeError(
                f"cannot listen on {address}: {getattr(error, 'strerror', None) or error}",
                hint="free it, or let `listen` name another address",
            ) from error
        return self

    @property
    def connections(self) -> int:
        return len(self._web.connections)

    def close(self) -> None:
        """Take no connection any more, and end those on which nothing is asked."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            if self._address.socket is not None:
                self._address.socket.unlink(missing_ok=True)
        for connection in self._web.connections:
            if isinstance(connection, _Connection):
                connection.rest()

    async def cut(self) -> None:
        await self._web.shutdown(timeout=0.1)


class _Connection(web.RequestHandler):
    """One client. What is no HTTP is answered as JSON too, and is no fault of ours."""

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=_IDLE_SECONDS,
            access_log=cast(logging.Logger, None),
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MOST_HEADERS,
            lingering_time=_LINGER_SECONDS,
            read_bufsize=_READ,
            auto_decompress=False,
        )

    def rest(self) -> None:
        """Close it if nothing is asked on it."""
        if self._waiter is not None:
            self.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionResetError("an answer had begun")
        if status >= 500:
            _log.error("a request failed", exc_info=exc)
            words, kind = "a fault of autospec; its log says more", "server_error"
        else:
            too_much = isinstance(exc, LineTooLong) or "Too many headers" in str(exc)
            status = 431 if too_much else status
            words = "the request's head is too large" if too_much else "not a sound HTTP request"
            kind = "invalid_request_error"
        body = {"error": {"message": words, "type": kind, "param": None, "code": None}}
        response = web.json_response(body, status=status, headers={"Server": "autospec"})
        response.force_close()
        return response


class _Full(asyncio.Protocol):
    """Turns a client away before it has said anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_REFUSAL)
        transport.close()


async def _make_way(path: Path) -> None:
    """Remove the socket that a killed daemon left; nobody who listens loses one."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_unix_connection(str(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        _remove_socket(path)
        return
    except TimeoutError:
        pass
    else:
        writer.close()
    raise FileExistsError(errno.EADDRINUSE, "another program listens there")


def _remove_socket(path: Path) -> None:
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket")
    path.unlink(missing_ok=True)
