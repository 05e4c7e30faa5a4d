"""The front door: listens at stable addresses and sends every request to the child it is for."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from autospec.config.schema import ServerSection
from autospec.config.values import Address
from autospec.daemon.front import errors, screen
from autospec.daemon.front.body import Body, Room
from autospec.daemon.front.child_metrics import merged
from autospec.daemon.front.errors import Refused
from autospec.daemon.front.guard import Guard, Keys, check_framing
from autospec.daemon.front.listening import Listener, most_connections
from autospec.daemon.front.metrics import Status, Tally
from autospec.daemon.front.relay import Relay
from autospec.daemon.front.routing import Page, Route, UnknownModel, named, route
from autospec.daemon.front.scan import TooComplex, form_model, scan
from autospec.daemon.front.upstream import Upstreams
from autospec.daemon.gate import Gate, Way
from autospec.engine.waiting import within_or_none

_log = logging.getLogger(__name__)

_PAGE_SECONDS = 2.0
_AT_ONCE = 1 << 16
"""Bytes of a body that are looked through without a thread."""

_CLOSING = frozenset({400, 403, 408, 413, 417, 501})
"""Answers after which a connection is not to be trusted with another request."""

Addresses = Mapping[Address, str | None]
"""Where to listen; an address may be bound to one model."""


class FrontDoor:
    """Stands before the children behind the gates `models`. All is called from one event loop.

    `status` returns the models of the status document, for `/metrics`; `ask` asks the daemon, for
    the page to look at.
    """

    def __init__(
        self,
        models: Mapping[str, Gate],
        settings: ServerSection,
        addresses: Addresses,
        status: Status = list,
        ask: screen.Ask = screen.nobody,
    ) -> None:
        self.tally = Tally()
        self._models = dict(models)
        self._settings = settings
        self._addresses = dict(addresses)
        self._status = status
        self._ask = ask
        self._upstreams = Upstreams()
        self._relay = Relay(self._upstreams, self.tally, settings.wait)
        self._room = Room(settings.max_body)
        self._guards: dict[Address, Guard] = {}
        self._listeners: dict[Address, Listener] = {}
        self._most = most_connections()
        self._active = 0
        self._stopping = False
        self._hurry = asyncio.Event()
        self._left = asyncio.Event()

    async def start(self) -> None:
        """Listen. ServeError where an address cannot be had or the key file cannot be read."""
        await self.update(self._models, self._settings, self._addresses)

    async def update(
        self, models: Mapping[str, Gate], settings: ServerSection, addresses: Addresses
    ) -> None:
        """Serve other models, by other rules or at other addresses from now on.

        Requests under way go on. On ServeError everything stays as it was.
        """
        keys = await asyncio.to_thread(Keys.read, settings.api_key_file)
        guards = {address: Guard.of(settings, address, keys) for address in addresses}
        await self._listen_at(addresses)
        self._guards = guards
        self._models, self._settings = dict(models), settings
        self._addresses = dict(addresses)
        self._relay.wait = settings.wait
        self._room.most = settings.max_body

    async def _listen_at(self, addresses: Addresses) -> None:
        """Leave the addresses that are gone first: a new one may overlap with them."""
        gone = [address for address in self._listeners if address not in addresses]
        for address in gone:
            self._listeners.pop(address).close()
        opened: list[Address] = []
        try:
            for address in addresses:
                if address not in self._listeners:
                    self._listeners[address] = await self._open(address)
                    opened.append(address)
        except BaseException:
            for address in opened:
                self._listeners.pop(address).close()
            for address in gone:
                self._listeners[address] = await self._open(address)
            raise

    async def _open(self, address: Address) -> Listener:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self._handle(address, request)

        return await Listener.open(address, handle, self._is_full)

    @property
    def connections(self) -> int:
        return sum(listener.connections for listener in self._listeners.values())

    def _is_full(self) -> bool:
        return self.connections >= self._most

    async def stop(self, within: float = 30.0) -> None:
        """Listen no more, let requests end for at most `within` seconds, then cut the others."""
        self._stopping = True
        for listener in self._listeners.values():
            listener.close()
        await within_or_none(within, self._drained())
        for listener in self._listeners.values():
            await listener.cut()
        self._listeners.clear()
        await self._upstreams.close()

    def hurry(self) -> None:
        """End a `stop` under way now."""
        self._hurry.set()

    async def _drained(self) -> None:
        while self._active and not self._hurry.is_set():
            self._left.clear()
            waits = [asyncio.create_task(one.wait()) for one in (self._left, self._hurry)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()

    async def _handle(self, address: Address, request: web.BaseRequest) -> web.StreamResponse:
        self._active += 1
        cors: dict[str, str] = {}
        guard = self._guards.get(address)
        ends = self._stopping or guard is None
        try:
            if self._stopping or guard is None:
                raise errors.busy("the daemon is stopping", "stopping")
            check_framing(request.raw_path, request.headers)
            guard.check_origin(request.headers)
            if (preflight := guard.preflight(request.headers)) and request.method == "OPTIONS":
                return web.Response(status=204, headers=preflight)
            cors = guard.cors(request.headers)
            guard.check_key(request.method, request.raw_path, request.headers)
            return await self._answer(address, request, cors)
        except Refused as refused:
            self.tally.refused(refused.status)
            response = errors.response(refused, request.raw_path)
            response.headers.extend(cors)
            response.headers["Server"] = "autospec"
            if ends or refused.status in _CLOSING:
                response.force_close()
            return response
        finally:
            self._active -= 1
            self._left.set()

    async def _answer(
        self, address: Address, request: web.BaseRequest, cors: dict[str, str]
    ) -> web.StreamResponse:
        names = tuple(self._models)
        bound = self._addresses.get(address)
        try:
            way = route(request.method, request.raw_path, names, bound)
            if way.page is not Page.CHILD:
                return await self._own(request.method, way, cors)
            body = await self._room.read(request)
            try:
                model = await self._model(way, request, body, names)
                return await self._carry(request, way.path, model, body, cors)
            finally:
                body.close()
        except UnknownModel as unknown:
            raise errors.unknown_model(unknown.name, names) from None

    async def _carry(
        self, request: web.BaseRequest, path: str, model: str, body: Body, cors: dict[str, str]
    ) -> web.StreamResponse:
        gate = self._models.get(model)
        if gate is None:
            raise UnknownModel(model)
        if gate.private_slots and request.method == "POST" and "slots" in unquote(path).lower():
            # The engine's own answer to those who have not asked for it.
            raise Refused(501, "This server does not support slots action", "not_supported_error")
        try:
            return await self._relay.carry(request, path, gate, body, cors)
        except asyncio.CancelledError:
            self.tally.left(model)
            raise
        finally:
            await self._upstreams.keep(
                gate.endpoint for gate in self._models.values() if gate.endpoint
            )

    async def _model(
        self, way: Route, request: web.BaseRequest, body: Body, names: tuple[str, ...]
    ) -> str:
        """The model that is meant, after a look into the body where one is needed."""
        media = not self._settings.remote_images
        if not (way.by_body or media) or not body.size:
            return way.model or names[0]
        form = request.content_type == "multipart/form-data"

        def look() -> tuple[str | None, str | None]:
            if form:
                return form_model(body.pieces()), None
            seen = scan(body.pieces(), media=media)
            return seen.model, seen.remote

        try:
            asked, remote = await asyncio.to_thread(look) if body.size > _AT_ONCE else look()
        except TooComplex:
            raise Refused(400, "the request's body has too many parts or levels") from None
        if remote is not None:
            raise Refused(
                400,
                f"{remote!r}: images and other media have to be part of the request, "
                "as [server] remote_images is false",
                code="remote_media_refused",
            )
        return way.model or named(asked, names)

    async def _own(self, method: str, way: Route, cors: dict[str, str]) -> web.Response:
        match way.page:
            case Page.HEALTH:
                return self._health(way.model, cors)
            case Page.METRICS:
                return await self._metrics(cors)
            case Page.MODELS:
                return await self._merged_models(cors)
            case Page.SCREEN:
                return await self._screen(method, way, cors)
            case Page.MOVED:
                return web.Response(status=308, headers={"Location": way.path, **cors})
            case _:
                return self._index(cors)

    def _health(self, model: str | None, cors: dict[str, str]) -> web.Response:
        """Good while any model (or this one) takes requests, if only after waking up."""
        gates = [self._models[model]] if model else self._models.values()
        if any(gate.way in (Way.OPEN, Way.ASLEEP) for gate in gates):
            return web.json_response({"status": "ok"}, headers=cors)
        error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        return web.json_response({"error": error}, status=503, headers=cors)

    async def _metrics(self, cors: dict[str, str]) -> web.Response:
        pages = await self._pages("/metrics")
        body = self.tally.page(self._models, self._status(), self.connections) + merged(pages)
        kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=body, headers=kind | cors)

    async def _screen(self, method: str, way: Route, cors: dict[str, str]) -> web.Response:
        answer = await screen.answer(method, way.path, self._ask, self._models, way.model)
        answer.headers.extend(cors)
        return answer

    async def _merged_models(self, cors: dict[str, str]) -> web.Response:
        """Every model under the name that requests use, with what its child tells of it."""
        pages = await self._pages("/v1/models")
        data = [_described(name, pages.get(name, b"")) for name in self._models]
        return web.json_response({"object": "list", "data": data}, headers=cors)

    async def _pages(self, path: str) -> dict[str, bytes]:
        """A page of every child that is there and answers in time."""
        gates = [gate for gate in self._models.values() if gate.way is Way.OPEN]
        found = await asyncio.gather(*(self._page(gate, path) for gate in gates))
        return {gate.name: page for gate, page in zip(gates, found, strict=True) if page}

    async def _page(self, gate: Gate, path: str) -> bytes | None:
        if gate.endpoint is None:
            return None
        with self._upstreams.of(gate.endpoint) as upstream:
            return await upstream.page(path, _PAGE_SECONDS)

    def _index(self, cors: dict[str, str]) -> web.Response:
        names = [html.escape(name) for name in self._models]
        items = "".join(f'<li><a href="upstream/{name}/">{name}</a></li>' for name in names)
        items += '</ul><p><a href="autospec/">What autospec does</a></p>'
        page = f"<!doctype html><title>autospec</title><h1>Models</h1><ul>{items}"
        return web.Response(text=page, content_type="text/html", headers=cors)


def _described(name: str, page: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"object": "model", "owned_by": "llamacpp"}
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        entry |= dict(json.loads(page)["data"][0])
    return entry | {"id": name}
