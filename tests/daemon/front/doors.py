"""A front door with children that a test plays itself, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from autospec.config.schema import ServerSection
from autospec.config.values import Address
from autospec.daemon.front.screen import Ask, nobody
from autospec.daemon.front.server import FrontDoor
from autospec.daemon.gate import Gate
from autospec.engine.launch import Endpoint

PATIENCE = 30.0


@dataclass
class Asked:
    """One request as a child saw it; `gone` is set when the front door hangs up."""

    head: bytes
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (one.partition(":") for one in lines if one)
        return {key.lower(): value.strip() for key, _, value in pairs}

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes = b"{}", *, status: str = "200 OK", more: str = "") -> None:
        await self.send(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def stream(self, kind: str = "text/event-stream") -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        await self.send(head.encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def gone(self) -> None:
        """Until the front door has hung up."""
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                while await self.reader.read(1 << 16):
                    pass

    def die(self) -> None:
        self.writer.transport.abort()


Play = Callable[[Asked], Awaitable[None]]


async def echo(asked: Asked) -> None:
    """Answer with the body, and with the request line in a header."""
    await asked.answer(asked.body, more=f"X-Line: {asked.line}\r\n")


@dataclass
class Child:
    """Listens on a socket and plays `play` for every request."""

    socket: Path
    play: Play = echo
    asked: list[Asked] = field(default_factory=list)
    backlog: int = 100
    reads_body: bool = True
    server: asyncio.Server | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(socket=self.socket)

    async def start(self) -> None:
        self.server = await asyncio.start_unix_server(
            self._serve, str(self.socket), backlog=self.backlog
        )

    def stop(self) -> None:
        if self.server is not None:
            self.server.close()
        for asked in self.asked:
            asked.die()
        for task in self.tasks:
            task.cancel()
        self.socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            asked = Asked(head[:-2], b"", reader, writer)
            length = int(asked.headers.get("content-length", "0"))
            if self.reads_body:
                asked.body = await reader.readexactly(length)
            self.asked.append(asked)
            await self.play(asked)
        writer.close()
        self.tasks.discard(task)


@dataclass
class Door:
    """An open front door at `base`, the gates and children behind it, and a client."""

    front: FrontDoor
    base: str
    gates: dict[str, Gate]
    children: dict[str, Child]
    client: aiohttp.ClientSession
    address: Address

    async def get(self, path: str, **more: Any) -> tuple[int, bytes]:
        async with self.client.get(self.base + path, **more) as answer:
            return answer.status, await answer.read()

    async def post(self, path: str, **more: Any) -> tuple[int, bytes]:
        async with self.client.post(self.base + path, **more) as answer:
            return answer.status, await answer.read()

    async def raw(self, data: bytes) -> bytes:
        """Everything that comes back for these bytes, until the other side hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.address.port)
        try:
            writer.write(data)
            async with asyncio.timeout(PATIENCE):
                with suppress(ConnectionError):
                    return await reader.read()
            return b""
        finally:
            writer.close()

    async def metrics(self) -> str:
        status, page = await self.get("/metrics")
        assert status == 200
        return page.decode()


@asynccontextmanager
async def open_door(
    folder: Path,
    port: int,
    *plays: Play,
    names: tuple[str, ...] = ("chat",),
    status: list[dict[str, Any]] | None = None,
    ask: Ask = nobody,
    bound: str | None = None,
    **settings: Any,
) -> AsyncIterator[Door]:
    """A door on `port` with a child for each of `names`, which play `plays` (the last for all
    that follow). The address may be `bound` to one of them."""
    address = Address("127.0.0.1", port)
    section = ServerSection.model_validate({"listen": str(address), "wait": 10, **settings})
    plays = plays or (echo,)
    children, gates = {}, {}
    for index, name in enumerate(names):
        children[name] = Child(folder / f"{index}.sock", plays[min(index, len(plays) - 1)])
        await children[name].start()
        gates[name] = Gate(name)
        gates[name].open(children[name].endpoint)
    front = FrontDoor(gates, section, {address: bound}, lambda: status or [], ask)
    await front.start()
    async with aiohttp.ClientSession(auto_decompress=False) as client:
        try:
            yield Door(front, f"http://{address}", gates, children, client, address)
        finally:
            front.hurry()
            await front.stop()
            for child in children.values():
                child.stop()
            await asyncio.sleep(0)


def play(work: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        await asyncio.wait_for(work, 2 * PATIENCE)

    asyncio.run(main())


async def until(reached: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not reached():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
