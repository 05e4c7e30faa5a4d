"""What passes through the front door, what is sent again, and how a broken answer ends."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from doors import Asked, Door, echo, open_door, play, until

pytestmark = pytest.mark.fault


async def one_line(door: Door, request: bytes) -> bytes:
    return (await door.raw(request)).split(b"\r\n")[0]


def test_method_path_query_headers_and_body_pass_untouched(tmp_path: Path, free_port: int) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            got = await door.raw(
                b"PATCH /v1/x/../%2Fy?a=%20b&c=+ HTTP/1.1\r\nHost: localhost\r\n"
                b"X-Own: \xc3\xa4\r\nX-Own: two\r\nContent-Type: text/plain\r\n"
                b"Accept-Encoding: br\r\nConnection: close, X-Hop\r\nX-Hop: gone\r\n"
                b"TE: trailers\r\n"
                b"Content-Length: 5\r\n\r\nhello"
            )
            (asked,) = door.children["chat"].asked
            assert asked.line == "PATCH /v1/x/../%2Fy?a=%20b&c=+ HTTP/1.1"
            assert asked.body == b"hello"
            assert asked.head.count(b"X-Own: ") == 2
            assert b"\xc3\xa4" in asked.head
            assert asked.headers["accept-encoding"] == "br"
            assert asked.headers["content-type"] == "text/plain"
            assert not {"x-hop", "te", "user-agent", "accept"} & asked.headers.keys()
            assert got.startswith(b"HTTP/1.1 200 OK\r\n")
            assert got.endswith(b"\r\n\r\nhello")

    play(check())


def test_a_chunked_body_and_a_compressed_one_reach_the_child_whole(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            await door.raw(
                b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n"
                b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            )
            (asked,) = door.children["chat"].asked
            assert (asked.body, asked.headers["content-encoding"]) == (b"abcde", "gzip")
            assert "transfer-encoding" not in asked.headers

    play(check())


def test_a_compressed_page_stays_as_it_is(tmp_path: Path, free_port: int) -> None:
    page = gzip.compress(b"<!doctype html>" + b"x" * 1_000_000, mtime=0)
    large = b"y" * 600_000

    async def serve(asked: Asked) -> None:
        found = page if asked.line.startswith("GET / ") else large
        await asked.answer(found, more="Content-Encoding: gzip\r\nETag: 1\r\n")

    async def check() -> None:
        async with open_door(tmp_path, free_port, serve) as door:
            for path, body in (("/", page), ("/upstream/chat/", page), ("/bundle.js", large)):
                async with door.client.get(door.base + path) as answer:
                    assert await answer.read() == body
                    assert answer.headers["Content-Encoding"] == "gzip"
                    assert int(answer.headers["Content-Length"]) == len(body)

    play(check())


def test_a_client_that_asks_before_it_sends_is_told_to(tmp_path: Path, free_port: int) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            got = await door.raw(
                b"POST /a HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                b"Connection: close\r\nContent-Length: 2\r\n\r\nhi"
            )
            assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
            assert await one_line(
                door,
                b"POST /a HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\n"
                b"Content-Length: 2\r\n\r\nhi",
            ) == (b"HTTP/1.1 417 Expectation Failed")

    play(check())


def test_a_stream_is_not_held_back_in_either_direction(tmp_path: Path, free_port: int) -> None:
    turns: asyncio.Queue[bytes] = asyncio.Queue()

    async def stream(asked: Asked) -> None:
        await asked.stream()
        while part := await turns.get():
            await asked.chunk(part)
        await asked.chunk(b"")

    async def check() -> None:
        async with (
            open_door(tmp_path, free_port, stream) as door,
            door.client.post(f"{door.base}/v1/completions", json={}) as answer,
        ):
            assert answer.headers["Content-Type"] == "text/event-stream"
            for part in (b"data: 1\n\n", b"data: ", b"2\n\n"):
                turns.put_nowait(part)
                assert await answer.content.readany() == part
            turns.put_nowait(b"")
            assert await answer.read() == b""

    play(check())


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_leaves_takes_its_request_with_it(
    tmp_path: Path, free_port: int, begun: bool
) -> None:
    left = asyncio.Event()

    async def stay(asked: Asked) -> None:
        if begun:
            await asked.stream()
            await asked.chunk(b"data: 1\n\n")
        await asked.gone()
        left.set()

    async def check() -> None:
        async with open_door(tmp_path, free_port, stay) as door:
            _, writer = await asyncio.open_connection("127.0.0.1", free_port)
            writer.write(b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
            await until(lambda: door.children["chat"].asked)
            await asyncio.sleep(0.05)
            assert door.gates["chat"].in_flight() == 1
            writer.transport.abort()
            await left.wait()
            await until(lambda: not door.gates["chat"].in_flight())
            assert 'autospec_clients_left_total{model="chat"} 1.0' in await door.metrics()

    play(check())


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 20"])
def test_a_request_whose_child_died_is_answered_by_the_next_one(
    tmp_path: Path, free_port: int, head: bytes
) -> None:
    async def die(asked: Asked) -> None:
        await asked.send(head)
        door.gates["chat"].hold("died")
        asked.writer.close()

    async def bring_back() -> None:
        await until(lambda: door.children["chat"].asked)
        await asyncio.sleep(0.05)
        door.children["chat"].play = echo
        door.gates["chat"].open(door.children["chat"].endpoint)

    async def check() -> None:
        nonlocal door
        async with open_door(tmp_path, free_port, die) as door:
            back = asyncio.create_task(bring_back())
            assert await door.post("/v1/chat/completions", data=b"[1]") == (200, b"[1]")
            await back
            assert [asked.body for asked in door.children["chat"].asked] == [b"[1]", b"[1]"]
            assert 'autospec_resent_total{model="chat"} 1.0' in await door.metrics()
            assert door.gates["chat"].in_flight() == 0

    door: Door
    play(check())


def test_a_request_that_three_children_died_over_goes_to_no_fourth(
    tmp_path: Path, free_port: int
) -> None:
    async def die(asked: Asked) -> None:
        door.gates["chat"].open(door.children["chat"].endpoint)
        asked.die()

    async def check() -> None:
        nonlocal door
        async with open_door(tmp_path, free_port, die) as door:
            status, body = await door.post("/completion", json={})
            assert (status, json.loads(body)["error"]["code"]) == (502, "upstream_failed")
            assert len(door.children["chat"].asked) == 3

    door: Door
    play(check())


def test_a_child_that_lives_and_never_answers_a_request_is_not_asked_for_ever(
    tmp_path: Path, free_port: int
) -> None:
    async def die(asked: Asked) -> None:
        asked.die()

    async def check() -> None:
        async with open_door(tmp_path, free_port, die, wait=0.3) as door:
            status, body = await door.post("/completion", json={})
            assert (status, json.loads(body)["error"]["code"]) == (502, "upstream_failed")

    play(check())


def test_a_child_that_cannot_be_reached_is_tried_until_the_next_one_is_there(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            child = door.children["chat"]
            child.stop()
            request = asyncio.create_task(door.post("/completion", data=b"{}"))
            await asyncio.sleep(0.3)
            await child.start()
            assert await request == (200, b"{}")
            assert len(child.asked) == 1

    play(check())


def test_without_a_child_in_time_the_answer_says_when_to_come_back(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port, wait=0.1) as door:
            gate = door.gates["chat"]
            gate.hold("loading", expected=40)
            async with door.client.post(f"{door.base}/completion", json={}) as answer:
                assert answer.status == 503
                assert 30 < int(answer.headers["Retry-After"]) <= 40
                error = (await answer.json())["error"]
                assert (error["code"], "loading" in error["message"]) == ("model_not_ready", True)
            gate.shut("failed: no such file")
            status, body = await door.post("/v1/messages", json={})
            assert (status, json.loads(body)["error"]["type"]) == (503, "overloaded_error")
            gate.open(door.children["chat"].endpoint)
            door.children["chat"].stop()
            assert (await door.post("/completion", json={}))[0] == 503

    play(check())


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b'data: {"error": {"message": "chat: llama-server died'),
        ("/completion", b'data: {"error": {"message": "chat: llama-server died'),
        ("/v1/messages", b'event: error\ndata: {"type": "error", "error": {"type": "api_error"'),
        ("/v1/responses", b'event: error\ndata: {"type": "error", "code": "upstream_failed"'),
    ],
)
def test_a_stream_that_had_begun_ends_with_an_error_event(
    tmp_path: Path, free_port: int, path: str, last: bytes
) -> None:
    async def die(asked: Asked) -> None:
        await asked.stream()
        await asked.chunk(b"data: 1\n\n")
        await asyncio.sleep(0.05)
        asked.die()

    async def check() -> None:
        async with open_door(tmp_path, free_port, die) as door:
            status, body = await door.post(path, json={})
            assert status == 200
            first, error = body.split(b"\n\n", 1)
            assert first == b"data: 1"
            assert error.strip().startswith(last)
            assert body.endswith(b"}\n\n")
            assert len(door.children["chat"].asked) == 1
            assert 'autospec_broken_streams_total{model="chat"} 1.0' in await door.metrics()

    play(check())


def test_half_an_answer_that_is_no_stream_is_never_taken_for_a_whole_one(
    tmp_path: Path, free_port: int
) -> None:
    async def die(asked: Asked) -> None:
        if asked.line.startswith("GET"):
            await asked.stream("application/octet-stream")
            await asked.chunk(b"half")
        else:
            await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await asyncio.sleep(0.05)
        asked.die()

    async def check() -> None:
        async with open_door(tmp_path, free_port, die) as door:
            status, body = await door.post("/completion", json={})
            assert (status, json.loads(body)["error"]["code"]) == (502, "upstream_failed")
            got = await door.raw(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"half" in got
            assert not got.endswith(b"0\r\n\r\n")

    play(check())


@pytest.mark.parametrize("junk", [b"\x00\x01\x02", b"HTTP/1.1 banana\r\n\r\n", b"SSH-2.0-x\r\n"])
def test_a_child_that_speaks_no_http_is_a_bad_gateway(
    tmp_path: Path, free_port: int, junk: bytes
) -> None:
    async def babble(asked: Asked) -> None:
        await asked.send(junk)

    async def check() -> None:
        async with open_door(tmp_path, free_port, babble) as door:
            assert (await door.get("/props"))[0] == 502

    play(check())


def test_redirects_cookies_and_errors_of_the_child_are_the_clients_business(
    tmp_path: Path, free_port: int
) -> None:
    async def redirect(asked: Asked) -> None:
        await asked.answer(b"", status="302 Found", more="Location: /b\r\nSet-Cookie: a=b\r\n")

    async def check() -> None:
        async with open_door(tmp_path, free_port, redirect) as door:
            url = f"{door.base}/a"
            async with door.client.get(url, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (302, "/b")
            await door.get("/c", allow_redirects=False, headers={"Cookie": "own=1"})
            first, second = door.children["chat"].asked
            assert "cookie" not in first.headers
            assert "own=1" in second.headers["cookie"]

    play(check())


def test_head_and_empty_answers_keep_their_length(tmp_path: Path, free_port: int) -> None:
    async def head(asked: Asked) -> None:
        if asked.line.startswith("HEAD"):
            await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        else:
            await asked.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def check() -> None:
        async with open_door(tmp_path, free_port, head) as door:
            async with door.client.head(f"{door.base}/a") as answer:
                assert (answer.status, answer.headers["Content-Length"]) == (200, "1234")
            assert await door.get("/a") == (204, b"")

    play(check())


def test_a_client_that_reads_slowly_slows_the_child_and_nothing_is_piled_up(
    tmp_path: Path, free_port: int
) -> None:
    sent = 0

    async def flood(asked: Asked) -> None:
        nonlocal sent
        await asked.stream()
        part = b"x" * (1 << 16)
        for _ in range(400):
            await asked.chunk(part)
            sent += len(part)
        await asked.chunk(b"")

    async def check() -> None:
        async with (
            open_door(tmp_path, free_port, flood) as door,
            door.client.get(f"{door.base}/a") as answer,
        ):
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.2)
            assert sent < 16 << 20
            assert (await door.get("/health"))[0] == 200
            assert len(await answer.read()) == 400 << 16

    play(check())


def test_a_burst_is_answered_whole_although_the_child_queues_few(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            child = door.children["chat"]
            child.stop()
            child.backlog = 1
            await child.start()
            answers = await asyncio.gather(
                *(door.post("/completion", data=str(n).encode()) for n in range(100))
            )
            assert [body for _, body in answers] == [str(n).encode() for n in range(100)]

    play(check())


def test_requests_wait_for_a_child_that_is_asleep_and_wake_it(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            gate = door.gates["chat"]
            gate.sleep("idle")
            request = asyncio.create_task(door.post("/completion", data=b"{}"))
            await gate.wanted()
            assert (await door.get("/health"))[0] == 200
            gate.open(door.children["chat"].endpoint)
            assert await request == (200, b"{}")

    play(check())


def test_a_client_cannot_make_a_child_write_into_the_folder_that_is_its_owners(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            tail = (
                b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
            )
            ways = (b"/slots/0?action=save", b"//slots/0?action=save", b"/%73lots/0?action=erase")
            door.gates["chat"].private_slots = True
            for way in ways:
                assert (
                    await one_line(door, b"POST " + way + tail) == b"HTTP/1.1 501 Not Implemented"
                )
            assert not door.children["chat"].asked
            door.gates["chat"].private_slots = False
            assert await one_line(door, b"POST " + ways[0] + tail) == b"HTTP/1.1 200 OK"

    play(check())
