"""Bodies of requests, kept until a child has answered: small ones in memory, others in a file."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO

from aiohttp import StreamReader, web
from aiohttp.web_protocol import RequestPayloadError

from autospec.daemon.front.errors import Refused, busy

SMALL = 1 << 20
"""Bytes up to which one body may stay in memory."""

_MEMORY = 16 << 20
_FILES = 4
_PIECE = 1 << 18
_PATIENCE = 60.0
_SLOWEST = 16 << 10


class Body:
    """One body, whole. `data` is None where it lies in a file; `close` it when done."""

    def __init__(self, room: Room) -> None:
        self.size = 0
        self.data: bytes | None = b""
        self._room = room
        self._kept = 0
        self._file: BinaryIO | None = None
        self._parts: list[bytes] = []

    async def take(self, part: bytes) -> None:
        """Add a part; Refused where there is no room for it."""
        size = self.size + len(part)
        in_memory = self._file is None and size <= SMALL and self._room.lend_memory(len(part))
        if in_memory:
            self._kept = size
        else:
            self._room.lend_disk(len(part))
        self.size = size
        self._parts.append(part)
        if not in_memory and (self._file is None or sum(map(len, self._parts)) >= _PIECE):
            await self._spill()

    async def finish(self) -> None:
        if self._file is None:
            self.data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts = []
        else:
            self.data = None
            await self._spill()

    async def _spill(self) -> None:
        """Write what came to a file that has no name. A slow disk must not stop the others."""
        parts, self._parts = self._parts, []
        if self._file is None:
            self._room.back(memory=self._kept, disk=-self._kept)
            self._kept = 0
        try:
            self._file = await asyncio.to_thread(_written, self._file, parts)
        except OSError as error:
            reason = f"the request's body cannot be kept on disk: {error.strerror}"
            raise busy(reason, "no_space") from error

    def pieces(self) -> Iterator[bytes]:
        """All of it, part by part, from the start."""
        if self._file is None:
            assert self.data is not None
            yield self.data
            return
        number, offset = self._file.fileno(), 0
        while offset < self.size:
            piece = os.pread(number, _PIECE, offset)
            offset += len(piece)
            yield piece

    async def pieces_apart(self) -> AsyncIterator[bytes]:
        """As `pieces`, read in a thread."""
        pieces = self.pieces()
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    def close(self) -> None:
        self._room.back(memory=self._kept, disk=self.size - self._kept)
        self._kept = self.size = 0
        self._parts = []
        if self._file is not None:
            self._file.close()


class Room:
    """How much all bodies together may take: `most` bytes each, four times that on disk."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._memory = 0
        self._disk = 0

    def lend_memory(self, size: int) -> bool:
        if self._memory + size > _MEMORY:
            return False
        self._memory += size
        return True

    def lend_disk(self, size: int) -> None:
        if self._disk + size > _FILES * self.most:
            raise busy("too many large bodies at a time", "too_many_bodies")
        self._disk += size

    def back(self, *, memory: int, disk: int) -> None:
        self._memory -= memory
        self._disk -= disk

    async def read(self, request: web.BaseRequest) -> Body:
        """The whole body of `request`. Refused when it is too large, too slow or cut off."""
        announced = request.content_length or 0
        if announced > self.most:
            raise self._too_large()
        await _invite(request)
        body = Body(self)
        try:
            await self._fill(body, request.content)
            await body.finish()
        except BaseException:
            body.close()
            raise
        return body

    async def _fill(self, body: Body, content: StreamReader) -> None:
        began = time.monotonic()
        while not content.at_eof():
            left = began + _PATIENCE + body.size / _SLOWEST - time.monotonic()
            try:
                async with asyncio.timeout(left):
                    part = await content.readany()
            except TimeoutError:
                raise Refused(408, "the request's body comes too slowly") from None
            except RequestPayloadError as error:
                raise Refused(400, f"the request's body is malformed: {error}") from None
            if body.size + len(part) > self.most:
                raise self._too_large()
            await body.take(part)

    def _too_large(self) -> Refused:
        return Refused(
            413,
            f"the request's body has more than {self.most} bytes; [server] max_body allows more",
            code="body_too_large",
        )


async def _invite(request: web.BaseRequest) -> None:
    """Tell a client that asks first (`Expect: 100-continue`) to send its body."""
    expected = request.headers.get("Expect")
    if expected is None:
        return
    if expected.lower() != "100-continue":
        raise Refused(417, f"cannot do what is expected: {expected[:100]}")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0


def _written(file: BinaryIO | None, parts: list[bytes]) -> BinaryIO:
    kept = file or tempfile.TemporaryFile("w+b", buffering=0, prefix="autospec-")  # noqa: SIM115
    try:
        for part in parts:
            left = memoryview(part)
            while left:
                left = left[kept.write(left) :]
    except OSError:
        kept.close()
        raise
    return kept
