"""The page to look at, asked over HTTP: what it tells, to whom, and with which headers."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from doors import Door, open_door, play
from told import Daemon, bare, model

from autospec.daemon.front import screen
from autospec.errors import AutospecError

TWO = ("chat", "coder")
DATA = ("status.json", "history.json", "explain.json?model=chat")
KEY = {"Authorization": "Bearer secret"}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text("secret\n")
    return file


async def told(door: Door, path: str, **more: Any) -> Any:
    async with door.client.get(door.base + path, **more) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        body = await answer.read()
        if answer.headers.get("Content-Encoding") == "deflate":
            body = zlib.decompress(body)
        return json.loads(body)


def test_its_files_come_with_headers_that_let_nothing_else_in(tmp_path: Path, free_port: int):
    async def check() -> None:
        async with open_door(tmp_path, free_port, names=TWO) as door:
            for path in sorted(screen.SHELL):
                async with door.client.get(door.base + path) as answer:
                    assert answer.status == 200
                    assert answer.charset == "utf-8"
                    headers, body = answer.headers, await answer.read()
                assert len(body) > 100
                policy = headers["Content-Security-Policy"].split("; ")
                assert "default-src 'none'" in policy
                assert "connect-src 'self'" in policy
                assert "frame-ancestors 'none'" in policy
                assert not re.search(r"unsafe|\*|http", headers["Content-Security-Policy"])
                assert headers["X-Content-Type-Options"] == "nosniff"
                assert headers["Cache-Control"] == "no-cache"
                assert headers["Referrer-Policy"] == "no-referrer"

    play(check())


def test_it_fetches_nothing_from_elsewhere_and_has_no_code_in_its_html() -> None:
    folder = Path(screen.__file__).parent / "page"
    assert {screen.HOME + file.name for file in folder.iterdir()} | {screen.HOME} == screen.SHELL
    for file in folder.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
    page = (folder / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=|<style", page)


def test_data_is_that_of_the_daemon_and_no_path_of_the_machine(tmp_path: Path, free_port: int):
    daemon = Daemon()

    async def check() -> None:
        async with open_door(tmp_path, free_port, names=TWO, ask=daemon) as door:
            status = await told(door, "/autospec/status.json")
            assert status["models"] == daemon.models
            assert status["at"] > 0
            assert len(status["events"]) == 4
            assert not re.search(r"/etc|/opt|hardware", json.dumps(status))
            history = await told(door, "/autospec/history.json")
            assert set(history["samples"]) == set(TWO)
            history = await told(door, "/autospec/history.json?model=chat")
            assert set(history["samples"]) == {"chat"}
            explained = await told(door, "/autospec/explain.json?model=chat")
            assert [one["model"] for one in explained["models"]] == ["chat"]
            async with door.client.get(door.base + "/autospec/status.json") as answer:
                assert answer.headers["Cache-Control"] == "no-store"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
            async with door.client.head(door.base + "/autospec/status.json") as answer:
                assert (answer.status, await answer.read()) == (200, b"")
            assert {request["op"] for request in daemon.asked} == {"status", "history", "explain"}

    play(check())


def test_with_keys_data_needs_one_and_the_page_that_asks_for_it_does_not(
    tmp_path: Path, free_port: int, keys: Path
):
    daemon = Daemon()

    async def check() -> None:
        async with open_door(
            tmp_path, free_port, names=TWO, ask=daemon, api_key_file=str(keys)
        ) as door:
            for place in ("/autospec/", "/upstream/chat/autospec/"):
                assert (await door.get(place))[0] == 200
                assert (await door.get(place + "page.js"))[0] == 200
                for name in DATA:
                    assert (await door.get(place + name))[0] == 401
                    wrong = {"Authorization": "Bearer wrong"}
                    assert (await door.get(place + name, headers=wrong))[0] == 401
                assert not daemon.asked
                await told(door, place + "status.json", headers=KEY)
                daemon.asked.clear()
            assert (await door.get("/autospec/nothing"))[0] == 401

    play(check())


@pytest.mark.parametrize("bound", [None, "chat"])
def test_where_one_model_is_served_nothing_is_told_of_others(
    tmp_path: Path, free_port: int, bound: str | None
):
    place = "/autospec/" if bound else "/upstream/chat/autospec/"

    async def check() -> None:
        async with open_door(tmp_path, free_port, names=TWO, ask=Daemon(), bound=bound) as door:
            for name in ("status.json", "history.json", "explain.json"):
                seen = await told(door, place + name)
                assert "coder" not in json.dumps(seen)
                assert '"chat"' in json.dumps(seen)
            for name in DATA[1:]:
                other = name.partition("?")[0] + "?model=coder"
                status, body = await door.get(place + other)
                assert status == 404
                assert b"Valid models: chat" in body

    play(check())


def test_a_model_called_autospec_is_reached_as_ever(tmp_path: Path, free_port: int):
    daemon = Daemon([model("autospec"), bare("chat")])

    async def check() -> None:
        async with open_door(tmp_path, free_port, names=("autospec", "chat"), ask=daemon) as door:
            await door.get("/upstream/autospec/props")
            assert door.children["autospec"].asked[0].line == "GET /props HTTP/1.1"
            status = await told(door, "/autospec/status.json")
            assert [one["name"] for one in status["models"]] == ["autospec", "chat"]

    play(check())


def test_what_cannot_be_is_refused(tmp_path: Path, free_port: int):
    async def check() -> None:
        async with open_door(tmp_path, free_port, names=TWO, ask=Daemon()) as door:
            for method in ("POST", "PUT", "DELETE"):
                url = door.base + "/autospec/status.json"
                async with door.client.request(method, url) as answer:
                    assert answer.status == 405
                    assert answer.headers["Allow"] == "GET, HEAD"
            for path in ("nothing", "..%2fguard.py", "page%2e.js", "../screen.py", "reload"):
                raw = f"GET /autospec/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                answered = await door.raw(raw.encode() + b"GET / HTTP/1.0\r\n\r\n")
                assert answered.startswith(b"HTTP/1.1 404"), path
            assert (await door.get("/autospec/explain.json?model=none"))[0] == 404
            assert not any(child.asked for name, child in door.children.items())

    play(check())


def test_the_address_without_a_slash_leads_to_it(tmp_path: Path, free_port: int):
    async def check() -> None:
        async with open_door(tmp_path, free_port, ask=Daemon([model("chat")])) as door:
            for path in ("/autospec", "/upstream/chat/autospec"):
                async with door.client.get(door.base + path) as answer:
                    assert answer.url.path == f"{path}/"
                    assert answer.content_type == "text/html"

    play(check())


def test_a_page_of_the_web_is_refused_as_elsewhere(tmp_path: Path, free_port: int):
    async def check() -> None:
        async with open_door(tmp_path, free_port, ask=Daemon()) as door:
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                assert (await door.get("/autospec/status.json", headers=headers))[0] == 403

    play(check())


def test_a_daemon_that_cannot_tell_yet_says_so(tmp_path: Path, free_port: int):
    async def starting(_request: dict[str, Any]) -> dict[str, Any]:
        raise AutospecError("the daemon has only just started")

    async def check() -> None:
        async with open_door(tmp_path, free_port, ask=starting) as door:
            status, body = await door.get("/autospec/status.json")
            assert status == 503
            assert b"only just started" in body

    play(check())
