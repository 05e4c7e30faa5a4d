"""The front door before the real engine: every API, the web page, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from doors import play, until

from autospec.config.schema import ServerSection
from autospec.config.values import Address
from autospec.daemon.front.server import FrontDoor
from autospec.daemon.gate import Gate
from autospec.engine.arguments import server_argv
from autospec.engine.environment import child_environment
from autospec.engine.launch import PLAIN, Endpoint, Launch
from autospec.engine.server import Server

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = pytest.mark.real

CHAT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
LONG = {"prompt": "Once upon a time", "n_predict": 100_000, "ignore_eos": True, "stream": True}
"""More than can be decoded while a test waits."""


PAGES = {"index.html": "<title>chat</title><script src=bundle.js></script>", "bundle.js": "1;"}


class Real:
    """A front door with one real child."""

    def __init__(
        self, base: str, client: aiohttp.ClientSession, server: Server, gate: Gate
    ) -> None:
        self.base = base
        self.gate = gate
        self.client = client
        self.server = server

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        async with self.client.post(self.base + path, json=body) as answer:
            text = await answer.text()
            assert answer.status == 200, text
            return json.loads(text)

    async def events(self, path: str, body: dict[str, Any]) -> list[str]:
        async with self.client.post(self.base + path, json=body | {"stream": True}) as answer:
            assert answer.content_type == "text/event-stream"
            text = await answer.text()
        return [line[6:] for line in text.splitlines() if line.startswith("data: ")]

    async def busy(self) -> bool:
        return any(slot.processing for slot in await self.server.slots())


Checked = Callable[[Real], Coroutine[Any, Any, None]]


@pytest.fixture
def real(
    engine: Engine, models: DemoModels, isolated: Path, free_port: int
) -> Callable[[Checked], None]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Real]:
        endpoint = Endpoint(socket=isolated / "child.sock")
        pages = isolated / "pages"
        pages.mkdir()
        for name, text in PAGES.items():
            (pages / name).write_text(text)
        extra = ("--threads", "1", "--path", str(pages))
        launch = Launch("small", model=models.draft, context=2048, extra=extra)
        argv = server_argv(engine, launch, PLAIN, endpoint)
        address = Address("127.0.0.1", free_port)
        gate = Gate("small")
        front = FrontDoor({"small": gate}, ServerSection(), {address: None})
        await front.start()
        env, _ = child_environment(os.environ, {})
        server = await Server.start(argv, env, endpoint)
        async with server, aiohttp.ClientSession() as client:
            await server.ready(120)
            gate.open(endpoint)
            try:
                yield Real(f"http://{address}", client, server, gate)
            finally:
                front.hurry()
                await front.stop()

    def run(check: Checked) -> None:
        async def main() -> None:
            async with opened() as one:
                await check(one)

        play(main())

    return run


def test_every_api_answers_whole_and_streamed(real: Callable[[Checked], None]) -> None:
    async def check(door: Real) -> None:
        whole = await door.post("/v1/chat/completions", CHAT)
        text = whole["choices"][0]["message"]["content"]
        events = await door.events("/v1/chat/completions", CHAT)
        assert events[-1] == "[DONE]"
        deltas = [json.loads(event)["choices"] for event in events[:-1]]
        pieces = [one[0]["delta"].get("content") or "" for one in deltas if one]
        assert "".join(pieces) == text != ""

        native = {"prompt": "The sun is", "n_predict": 8, "temperature": 0}
        whole = await door.post("/completion", native)
        assert whole["timings"]["predicted_n"] == 8
        pieces = [
            json.loads(event)["content"] for event in await door.events("/completion", native)
        ]
        assert "".join(pieces) == whole["content"] != ""

        whole = await door.post("/v1/messages", CHAT)
        assert whole["type"] == "message"
        kinds = [json.loads(event)["type"] for event in await door.events("/v1/messages", CHAT)]
        assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")

        async with door.client.get(f"{door.base}/v1/models") as answer:
            (model,) = (await answer.json())["data"]
        assert (model["id"], model["meta"]["n_vocab"]) == ("small", 49152)
        async with door.client.get(f"{door.base}/metrics") as answer:
            page = await answer.text()
        assert 'llamacpp:tokens_predicted_total{model="small"}' in page
        assert 'autospec_requests_total{code="200",model="small"}' in page

    real(check)


def test_the_engines_web_page_and_its_other_pages_come_through(
    real: Callable[[Checked], None],
) -> None:
    """This build has no page of its own, and serves one from a folder."""

    async def check(door: Real) -> None:
        async with door.client.get(f"{door.base}/") as answer:
            assert await answer.text() == PAGES["index.html"]
            assert answer.content_type == "text/html"
        async with door.client.get(f"{door.base}/bundle.js") as answer:
            assert await answer.text() == PAGES["bundle.js"]
        for path in ("/", "/index.html", "/props", "/slots", "/sw.js", "/no-such"):
            direct = await door.server.client.get(path, headers={"Origin": "http://localhost"})
            assert "Access-Control-Allow-Origin" in direct.headers
            for base in ("", "/upstream/small"):
                async with door.client.get(door.base + base + path) as answer:
                    assert answer.status == direct.status_code
                    assert await answer.read() == direct.content
                    assert answer.headers["Content-Type"] == direct.headers["Content-Type"]
                    assert not [name for name in answer.headers if name.startswith("Access-")]

    real(check)


def test_a_client_that_leaves_a_stream_frees_the_slot(real: Callable[[Checked], None]) -> None:
    async def check(door: Real) -> None:
        for path in ("/completion", "/v1/completions"):
            async with door.client.post(door.base + path, json=LONG) as answer:
                await answer.content.readany()
                assert await door.busy()
            while await door.busy():
                assert answer.closed
            await until(lambda: not door.gate.in_flight())

    real(check)


def test_a_client_that_leaves_before_an_answer_is_not_waited_for(
    real: Callable[[Checked], None],
) -> None:
    """The engine itself finishes an answer that is no stream (build 11434), door or no door."""

    async def check(door: Real) -> None:
        ask = door.client.post(f"{door.base}/completion", json=LONG | {"stream": False})
        request = asyncio.create_task(ask)
        while not await door.busy():
            assert not request.done()
        request.cancel()
        await until(lambda: not door.gate.in_flight())

    real(check)


@pytest.mark.fault
def test_a_stream_whose_engine_is_killed_ends_with_an_error(
    real: Callable[[Checked], None],
) -> None:
    async def check(door: Real) -> None:
        async with door.client.post(f"{door.base}/v1/completions", json=LONG) as answer:
            first = await answer.content.readany()
            door.server.kill()
            rest = await answer.text()
        assert first.startswith(b"data: ")
        assert json.loads(rest.rsplit("data: ", 1)[1])["error"]["code"] == "upstream_failed"
        await until(lambda: door.server.process.returncode is not None)

    real(check)
