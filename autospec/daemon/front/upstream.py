"""The HTTP clients of the children: one for each endpoint, closed when nobody needs it."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from aiohttp.client_exceptions import UnixClientConnectorError
from multidict import CIMultiDict
from yarl import URL

from autospec.engine.launch import Endpoint
from autospec.engine.server import first_key

_READ = 1 << 16
_LONGEST_HEADER = 1 << 16
_CONNECT_SECONDS = 10.0
_RETRY_SECONDS = 0.005
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Upstream:
    """One child's address. A connection serves one request: the engine gives a thread to each
    connection, also to one that is only kept for later."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.users = 0
        self._keys: dict[str, str] = {}
        if endpoint.api_key_file is not None:
            self._keys["Authorization"] = f"Bearer {first_key(endpoint)}"
        connector: aiohttp.BaseConnector
        if endpoint.socket is not None:
            connector = _UnixConnector(str(endpoint.socket), limit=0, force_close=True)
            self._base = "http://llama"
        else:
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
            self._base = f"http://{host}:{endpoint.port}"
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            auto_decompress=False,
            read_bufsize=_READ,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
        )

    async def ask(
        self,
        method: str,
        path: str,
        headers: CIMultiDict[str],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> aiohttp.ClientResponse:
        """Send a request and wait for the head of its answer, however long that takes."""
        url = URL(self._base + path, encoded=True)
        sent = headers.copy()
        sent.extend(self._keys)
        return await self._session.request(
            method, url, headers=sent, data=body, allow_redirects=False
        )

    async def page(self, path: str, within: float) -> bytes | None:
        """A page of the child's, at most a megabyte; None where it cannot be had in time."""
        try:
            timeout = aiohttp.ClientTimeout(total=within)
            async with self._session.get(
                self._base + path, headers=self._keys, timeout=timeout, allow_redirects=False
            ) as answer:
                content = bytearray()
                async for part in answer.content.iter_any():
                    content += part
                    if len(content) > 1 << 20:
                        return None
                return bytes(content) if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def close(self) -> None:
        await self._session.close()


class _UnixConnector(aiohttp.UnixConnector):
    """Waits where the child's queue of connections is full, which is short (5, build 11434).

    connect(2) then says EAGAIN; asyncio takes that for connecting, and only the first write
    would fail.
    """

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Any:  # noqa: ANN401
        try:
            async with asyncio.timeout(timeout.connect):
                connected = await self._connected()
        except TimeoutError:
            raise aiohttp.ConnectionTimeoutError(f"{self.path} takes no connection") from None
        except OSError as error:
            raise UnixClientConnectorError(self.path, req.connection_key, error) from error
        _, protocol = await self._loop.create_unix_connection(self._factory, sock=connected)
        return protocol

    async def _connected(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            while True:
                try:
                    made.connect(self.path)
                except BlockingIOError:
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    return made
        except BaseException:
            made.close()
            raise


class Upstreams:
    def __init__(self) -> None:
        self._known: dict[Endpoint, Upstream] = {}

    @contextmanager
    def of(self, endpoint: Endpoint) -> Iterator[Upstream]:
        if (upstream := self._known.get(endpoint)) is None:
            upstream = self._known[endpoint] = Upstream(endpoint)
        upstream.users += 1
        try:
            yield upstream
        finally:
            upstream.users -= 1

    async def keep(self, wanted: Iterable[Endpoint]) -> None:
        """Close the clients of children that are gone, once their last request has ended."""
        kept = set(wanted)
        for endpoint, upstream in list(self._known.items()):
            if endpoint not in kept and not upstream.users:
                del self._known[endpoint]
                await upstream.close()

    async def close(self) -> None:
        for upstream in self._known.values():
            await upstream.close()
        self._known.clear()


def not_reached(error: Exception) -> bool:
    """Whether no connection came about, so that the child has seen nothing of a request."""
    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


def exhausted(error: Exception) -> bool:
    """Whether it is this process that has no descriptors or memory left."""
    return isinstance(error, OSError) and error.errno in _EXHAUSTED
