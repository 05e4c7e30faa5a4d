"""The front door before processes that are killed, frozen and replaced."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil
import pytest
from doors import PATIENCE, play, until

from autospec.config.schema import ServerSection
from autospec.config.values import Address
from autospec.daemon.front.server import FrontDoor
from autospec.daemon.gate import Gate
from autospec.engine.arguments import server_argv
from autospec.engine.find import read_engine
from autospec.engine.launch import PLAIN, Endpoint, Launch
from autospec.engine.server import Server

if TYPE_CHECKING:
    from conftest import FakeEngine

pytestmark = pytest.mark.fault


class Nursery:
    """Fake servers, one after another, behind one gate."""

    def __init__(self, fake: FakeEngine, folder: Path, front: FrontDoor, base: str) -> None:
        self.fake = fake
        self.folder = folder
        self.front = front
        self.base = base
        self.gate = Gate("m")
        self.count = 0
        self.stack = AsyncExitStack()
        self.client = aiohttp.ClientSession()

    async def next(self, **script: Any) -> Server:
        """Start another server and open the gate to it."""
        self.count += 1
        self.fake.script_server(**script)
        endpoint = Endpoint(socket=self.folder / f"{self.count}.sock")
        launch = Launch("m", model=self.fake.folder / "m.gguf", context=4096, slots=8)
        engine = read_engine(self.fake.server, "a test")
        argv = server_argv(engine, launch, PLAIN, endpoint)
        server = await self.stack.enter_async_context(await Server.start(argv, {}, endpoint))
        await server.ready(PATIENCE)
        self.gate.open(endpoint)
        return server

    async def ask(self, tokens: int, *, stream: bool = False) -> str:
        body = {"prompt": "x", "n_predict": tokens, "stream": stream}
        async with self.client.post(f"{self.base}/completion", json=body) as answer:
            assert answer.status == 200
            return await answer.text()

    async def died(self, server: Server) -> None:
        """As an owner does it: shut the way, then see to the next."""
        self.gate.hold("died")
        await server.ends_within(PATIENCE)


@asynccontextmanager
async def nursery(fake: FakeEngine, folder: Path, port: int) -> AsyncIterator[Nursery]:
    address = Address("127.0.0.1", port)
    gate = Gate("m")
    front = FrontDoor({"m": gate}, ServerSection(), {address: None})
    one = Nursery(fake, folder, front, f"http://{address}")
    one.gate = gate
    await front.start()
    try:
        async with one.stack, one.client:
            yield one
    finally:
        front.hurry()
        await front.stop()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_request_outlives_the_process_that_had_not_begun_to_answer(
    fake_engine: FakeEngine, isolated: Path, free_port: int, frozen: bool
) -> None:
    async def check() -> None:
        async with nursery(fake_engine, isolated, free_port) as one:
            first = await one.next(hang="completion")
            requests = [asyncio.create_task(one.ask(8)) for _ in range(5)]
            await until(lambda: one.gate.in_flight() == 5)
            await asyncio.sleep(0.1)
            if frozen:
                psutil.Process(first.pid).send_signal(signal.SIGSTOP)
            first.kill()
            await one.died(first)
            await one.next()
            answers = [json.loads(answer) for answer in await asyncio.gather(*requests)]
            assert [answer["tokens_predicted"] for answer in answers] == [8] * 5

    play(check())


def test_a_stream_of_a_process_that_was_killed_ends_and_the_next_request_is_served(
    fake_engine: FakeEngine, isolated: Path, free_port: int
) -> None:
    async def check() -> None:
        async with nursery(fake_engine, isolated, free_port) as one:
            first = await one.next(token_ms=5)
            request = asyncio.create_task(one.ask(100_000, stream=True))
            await until(one.gate.in_flight)
            await asyncio.sleep(0.3)
            first.kill()
            *events, last, end = (await request).split("\n\n")
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == "upstream_failed"
            assert end == ""
            assert all(json.loads(event[6:])["content"] for event in events if event)
            await one.died(first)
            waiting = asyncio.create_task(one.ask(3))
            await one.next()
            assert json.loads(await waiting)["tokens_predicted"] == 3

    play(check())


def test_a_new_server_takes_over_while_the_old_one_finishes(
    fake_engine: FakeEngine, isolated: Path, free_port: int
) -> None:
    async def check() -> None:
        async with nursery(fake_engine, isolated, free_port) as one:
            await one.next(token_ms=20)
            request = asyncio.create_task(one.ask(50, stream=True))
            await until(lambda: one.gate.in_flight(1))
            await one.next()
            assert json.loads(await one.ask(3))["tokens_predicted"] == 3
            assert one.gate.in_flight(1) == 1
            assert '"tokens_predicted": 50' in await request
            await one.gate.emptied(1)
            await one.ask(1)
            assert len(one.front._upstreams._known) == 1

    play(check())


def test_under_steady_load_and_five_kills_every_request_is_answered_once(
    fake_engine: FakeEngine, isolated: Path, free_port: int
) -> None:
    async def check() -> None:
        async with nursery(fake_engine, isolated, free_port) as one:
            server = await one.next(token_ms=2)
            answered = 0
            over = False

            async def client() -> None:
                nonlocal answered
                while not over:
                    assert json.loads(await one.ask(5))["tokens_predicted"] == 5
                    answered += 1

            clients = [asyncio.create_task(client()) for _ in range(4)]
            for _ in range(5):
                await asyncio.sleep(0.3)
                server.kill()
                await one.died(server)
                server = await one.next(token_ms=2)
            over = True
            await asyncio.gather(*clients)
            assert answered > 5

    play(check())
