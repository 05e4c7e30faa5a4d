"""Passing one request to a child and its answer back, untouched and as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from aiohttp.http_writer import StreamWriter
from multidict import CIMultiDict

from autospec.daemon.front.body import Body
from autospec.daemon.front.errors import Refused, broken, busy, no_child, stream_event
from autospec.daemon.front.fields import with_fields
from autospec.daemon.front.guard import to_child, to_client
from autospec.daemon.front.metrics import Tally
from autospec.daemon.front.upstream import Upstream, Upstreams, exhausted, not_reached
from autospec.daemon.gate import Gate, GateRefusal

MOST_DEATHS = 2
"""Children that may die over one request before it is taken for the cause."""

_WHOLE = 1 << 18
"""Bytes up to which an answer of known length is collected first, so that a child that dies
over it leaves an error and not half an answer."""

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25
_STALLED = 300.0
_EMPTY = frozenset({204, 304})
_LOST = (aiohttp.ClientError, OSError)


class Relay:
    """Carries requests over to children. `wait`: seconds that one waits for a child."""

    def __init__(self, upstreams: Upstreams, tally: Tally, wait: float) -> None:
        self.wait = wait
        self._upstreams = upstreams
        self._tally = tally

    async def carry(
        self, request: web.BaseRequest, path: str, gate: Gate, body: Body, cors: dict[str, str]
    ) -> web.StreamResponse:
        """The answer of the child behind `gate`; Refused when there is none.

        A request that a child took to its grave is sent to the next one, as long as nothing of
        an answer had come.
        """
        began = time.monotonic()
        headers = to_child(request.headers.items())
        deadline = began + self.wait
        dead: set[int] = set()
        pause = _FIRST_PAUSE
        while True:
            try:
                leave = await gate.enter(max(0.0, deadline - time.monotonic()))
            except GateRefusal as refusal:
                raise no_child(refusal) from None
            if len(dead - gate.innocent) > MOST_DEATHS:
                raise broken(f"{gate.name}: no answer came from llama-server")
            with gate.passing(leave), self._upstreams.of(leave.endpoint) as upstream:
                try:
                    fields = gate.fields()
                    answer = await _ask(upstream, request.method, path, headers, body, fields)
                except _LOST as error:
                    lost: Exception = error
                else:
                    async with answer:
                        passage = _Passage(request, answer, gate.name, self._tally, began)
                        response = await passage.pass_on(cors)
                        self._tally.ended(gate.name, time.monotonic() - began, body.size)
                        return response
            if not not_reached(lost) and leave.generation not in dead:
                # A child that is being killed still takes connections for a moment.
                dead.add(leave.generation)
                deadline = time.monotonic() + self.wait
                self._tally.resent(gate.name)
            _give_up(lost, gate.name, late=time.monotonic() > deadline)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


@dataclass(frozen=True)
class _Passage:
    """One answer on its way from a child to a client."""

    request: web.BaseRequest
    answer: aiohttp.ClientResponse
    model: str
    tally: Tally
    began: float

    async def pass_on(self, cors: dict[str, str]) -> web.StreamResponse:
        answer = self.answer
        headers = to_client(answer.headers.items(), cors)
        self.tally.answered(self.model, answer.status)
        empty = self.request.method == "HEAD" or answer.status in _EMPTY
        length = answer.content_length
        if not empty and length is not None and length <= _WHOLE:
            data = await self._whole()
            self._first_byte()
            self.tally.sent(self.model, len(data))
            headers.popall("Content-Length")
            return web.Response(
                status=answer.status, reason=answer.reason, body=data, headers=headers
            )
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
        writer = await response.prepare(self.request)
        assert isinstance(writer, StreamWriter)
        if not empty and not await self._stream(writer):
            self.tally.broken(self.model)
            if answer.content_type != "text/event-stream":
                self._cut()
                raise ConnectionResetError("half an answer")
            await writer.write(stream_event(self._died(), self.request.raw_path))
        await response.write_eof()
        self.tally.sent(self.model, writer.output_size)
        return response

    async def _whole(self) -> bytes:
        try:
            return await self.answer.read()
        except _LOST:
            raise self._died() from None

    async def _stream(self, writer: StreamWriter) -> bool:
        """Pass on whatever comes as soon as it comes; whether it came to its end."""
        read, write = self.answer.content.readany, writer.write
        protocol = self.request.protocol
        # Later, so that a first part that is there already shares a packet with the head.
        asyncio.get_running_loop().call_soon(_flush, writer)
        waits = True
        while True:
            try:
                part = await read()
            except _LOST:
                return False
            if not part:
                return True
            await write(part, drain=False)
            if waits:
                waits = False
                self._first_byte()
            if protocol.writing_paused:
                await self._until_read(writer)

    async def _until_read(self, writer: StreamWriter) -> None:
        try:
            async with asyncio.timeout(_STALLED):
                await writer.drain()
        except TimeoutError:
            self._cut()
            raise ConnectionResetError("the client has stopped reading") from None

    def _first_byte(self) -> None:
        self.tally.first_byte(self.model, time.monotonic() - self.began)

    def _died(self) -> Refused:
        return broken(f"{self.model}: llama-server died while it answered")

    def _cut(self) -> None:
        """End the connection so that nobody takes half an answer for a whole one."""
        if self.request.transport is not None:
            self.request.transport.abort()


def _flush(writer: StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        writer.send_headers()


def _give_up(lost: Exception, model: str, *, late: bool) -> None:
    """Raises Refused when there is no use in trying again."""
    if exhausted(lost):
        raise busy("too many connections", "too_many_connections")
    if isinstance(lost, aiohttp.ClientResponseError) or (late and not not_reached(lost)):
        raise broken(f"{model}: no answer came from llama-server")
    if late:
        raise busy(f"{model}: llama-server cannot be reached", "model_not_ready")


async def _ask(
    upstream: Upstream,
    method: str,
    path: str,
    headers: CIMultiDict[str],
    body: Body,
    fields: Mapping[str, float] | None,
) -> aiohttp.ClientResponse:
    if body.data and fields:
        return await upstream.ask(method, path, headers, with_fields(body.data, path, fields))
    if body.data is not None:
        return await upstream.ask(method, path, headers, body.data or None)
    sized = headers.copy()
    sized["Content-Length"] = str(body.size)
    return await upstream.ask(method, path, sized, body.pieces_apart())
