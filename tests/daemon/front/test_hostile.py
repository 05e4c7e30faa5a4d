"""Hostile clients: smuggling, floods, foreign pages, wrong keys, too many of everything."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from doors import PATIENCE, Asked, Door, open_door, play, until

from autospec.daemon.front.body import Body

pytestmark = pytest.mark.fault

HOST = b"Host: localhost\r\n"
CLOSE = b"Connection: close\r\n"
TE = b"Transfer-Encoding: "


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\n%bContent-Length: 4\r\n" + TE + b"chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n%b" + TE + b"chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n%bContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\n%bContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\n%bContent-Length: 1, 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\n%bContent-Length: +2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\n%bContent-Length: -2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\n%bContent-Length : 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\n%b" + TE + b"chunked\r\n" + TE + b"identity\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n%bTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n%bTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n2\nab\n0\n\n", 400),
        (b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nab", 400),
        (b"GET / HTTP/1.1\r\n%bA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\n%bA: b\n\n", 400),
        (b"GET / HTTP/1.1\r\n%bA\x00B: c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n%bA: b\x00c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n%b: empty\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n%bHost: other\r\n\r\n", 400),
        (b"GET http://localhost/ HTTP/1.1\r\n%b\r\n", 400),
        (b"CONNECT localhost:1 HTTP/1.1\r\n%b\r\n", 400),
        (b"GET / HTTP/1.1\r\n%bConnection: upgrade\r\nUpgrade: websocket\r\n\r\nGET /b", 501),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n%b\r\n", 431),
        (b"GET / HTTP/1.1\r\n%bA: " + b"b" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n%b" + b"A: b\r\n" * 10_000 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n%b\r\n", 400),
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_reaches_no_child(
    tmp_path: Path, free_port: int, request_bytes: bytes, status: int
) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"

    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            got = await door.raw(request_bytes.replace(b"%b", HOST) + smuggled)
            assert got.split(b" ")[1] == str(status).encode(), got[:200]
            assert b"\r\n\r\n{" in got
            assert got.count(b"HTTP/1.") == 1
            assert door.children["chat"].asked == []
            assert await door.get("/health") == (200, b'{"status": "ok"}')

    play(check())


def test_a_body_of_a_gibibyte_is_refused_before_and_while_it_comes(
    tmp_path: Path, free_port: int
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(4096):
            yield b"x" * (1 << 18)

    async def check() -> None:
        async with open_door(tmp_path, free_port, max_body=32 << 20) as door:
            memory = psutil.Process().memory_info().rss
            announced = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 1073741824\r\n\r\n"
            got = await door.raw(announced)
            assert got.startswith(b"HTTP/1.1 413 ")
            try:
                status, _ = await door.post("/completion", data=endless())
                assert status == 413
            except OSError:
                pass
            assert psutil.Process().memory_info().rss - memory < 32 << 20
            assert door.children["chat"].asked == []
            assert 'autospec_refused_total{code="413"} 2.0' in await door.metrics()

    play(check())


def test_a_large_body_lies_in_a_file_and_reaches_even_the_next_child_whole(
    tmp_path: Path, free_port: int
) -> None:
    size = 64 << 20

    async def numbered() -> AsyncIterator[bytes]:
        for number in range(size >> 20):
            yield bytes([number]) * (1 << 20)

    async def swallow(asked: Asked) -> None:
        """Die over the first request, count the bytes of the second."""
        seen, wrong = 0, 0
        while seen < size:
            part = await asked.reader.read(1 << 18)
            if len(door.children["chat"].asked) == 1 and seen > size // 2:
                asked.die()
                return
            wrong += part[0] != seen >> 20
            seen += len(part)
        await asked.answer(json.dumps([seen, wrong]).encode())

    async def check() -> None:
        nonlocal door
        async with open_door(tmp_path, free_port, swallow) as door:
            door.children["chat"].reads_body = False
            status, body = await door.post("/completion", data=numbered())
            assert (status, json.loads(body)) == (200, [size, 0])

    door: Door
    play(check())


def test_bodies_together_have_bounds_too(tmp_path: Path, free_port: int) -> None:
    async def slow(size: int) -> AsyncIterator[bytes]:
        yield b"x" * size
        await held.wait()

    async def check() -> None:
        nonlocal held
        held = asyncio.Event()
        async with open_door(tmp_path, free_port, max_body=2 << 20) as door:
            waiting = [
                asyncio.create_task(door.post("/completion", data=slow((2 << 20) - 1)))
                for _ in range(4)
            ]
            await until(lambda: door.front._room._disk > 7 << 20)
            status, _ = await door.post("/completion", data=io.BytesIO(b"x" * (2 << 20)))
            assert status == 503
            assert (await door.post("/completion", data=b"small"))[0] == 200
            held.set()
            assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 4
            assert (door.front._room._disk, door.front._room._memory) == (0, 0)

    held: asyncio.Event
    play(check())


def test_a_disk_that_is_full_refuses_the_large_body_and_nothing_else(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            status, body = await door.post("/completion", data=io.BytesIO(b"x" * (2 << 20)))
            assert (status, json.loads(body)["error"]["code"]) == (503, "no_space")
            assert (await door.post("/completion", data=b"small"))[0] == 200
            assert (door.front._room._disk, door.front._room._memory) == (0, 0)

    play(check())


def test_a_body_that_dribbles_is_not_waited_for(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autospec.daemon.front.body._PATIENCE", 0.2)

    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            got = await door.raw(
                b"POST /a HTTP/1.1\r\n" + HOST + CLOSE + b"Content-Length: 9\r\n\r\nx"
            )
            assert got.startswith(b"HTTP/1.1 408 ")
            assert door.children["chat"].asked == []

    play(check())


def test_a_page_under_a_foreign_name_or_origin_reaches_nothing(
    tmp_path: Path, free_port: int
) -> None:
    async def lax(asked: Asked) -> None:
        await asked.answer(more="Access-Control-Allow-Origin: *\r\n")

    async def check() -> None:
        async with open_door(
            tmp_path, free_port, lax, allowed_origins=["http://good.example"]
        ) as door:
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                for path in ("/completion", "/health", "/metrics", "/"):
                    assert (await door.get(path, headers=headers))[0] == 403
            assert door.children["chat"].asked == []
            async with door.client.get(f"{door.base}/props") as answer:
                assert "Access-Control-Allow-Origin" not in answer.headers
            good = {"Origin": "http://good.example"}
            for path in ("/props", "/health", "/v1/models", "/upstream/none/"):
                async with door.client.get(door.base + path, headers=good) as answer:
                    allowed = answer.headers.getall("Access-Control-Allow-Origin")
                    assert allowed == ["http://good.example"]
            ask = good | {"Access-Control-Request-Method": "POST"}
            async with door.client.options(f"{door.base}/completion", headers=ask) as answer:
                assert answer.status == 204
                assert "POST" in answer.headers["Access-Control-Allow-Methods"]

    play(check())


def test_without_a_key_there_is_no_answer_and_no_key_reaches_the_child(
    tmp_path: Path, free_port: int
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# mine\nsecret\n")

    async def check() -> None:
        async with open_door(tmp_path, free_port, api_key_file=str(keys)) as door:
            for path in ("/metrics", "/v1/models", "/props", "/slots"):
                status, body = await door.get(path)
                assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
            status, body = await door.post("/v1/messages", json={})
            assert json.loads(body)["error"]["type"] == "authentication_error"
            assert door.children["chat"].asked == []
            assert await door.get("/health") == (200, b'{"status": "ok"}')
            for headers in ({"Authorization": "Bearer secret"}, {"X-Api-Key": "secret"}):
                assert (await door.post("/completion", data=b"{}", headers=headers))[0] == 200
            assert (await door.get("/metrics", headers=headers))[0] == 200
            assert not any(b"secret" in asked.head for asked in door.children["chat"].asked)

    play(check())


def test_remote_images_are_refused_where_that_is_wanted(tmp_path: Path, free_port: int) -> None:
    body = {"messages": [{"content": [{"image_url": {"url": "http://169.254.169.254/"}}]}]}

    async def check() -> None:
        async with open_door(tmp_path, free_port, remote_images=False) as door:
            status, answer = await door.post("/v1/chat/completions", json=body)
            assert (status, json.loads(answer)["error"]["code"]) == (400, "remote_media_refused")
            assert (await door.post("/upstream/chat/v1/chat/completions", json=body))[0] == 400
            padded = json.dumps({"a": "x" * 300_000} | body).encode()
            assert (await door.post("/v1/chat/completions", data=padded))[0] == 400
            assert (await door.post("/v1/chat/completions", data=b"[" * 5000))[0] == 400
            assert door.children["chat"].asked == []
            assert (await door.post("/v1/chat/completions", json={"messages": []}))[0] == 200

    play(check())


FEW = 96
STARVED = """
import asyncio, resource, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from doors import open_door
async def main():
    async with open_door(Path(sys.argv[1]), int(Path(sys.argv[1], "port").read_text())) as door:
        hoard = []
        while True:
            try:
                hoard.append(open("/dev/null"))
            except OSError:
                break
        hoard.pop().close()
        Path(sys.argv[1], "ready").touch()
        hoard.append(open("/dev/null"))
        while not Path(sys.argv[1], "release").exists():
            await asyncio.sleep(0.05)
        for one in hoard:
            one.close()
        await asyncio.sleep(60)
asyncio.run(main())
"""


def test_without_descriptors_clients_wait_or_are_turned_away_and_later_served(
    isolated: Path, free_port: int
) -> None:
    (isolated / "port").write_text(str(free_port))
    script = isolated / "starved.py"
    script.write_text(STARVED)
    here = [str(Path(__file__).parent), str(Path(__file__).parents[3])]
    starved = subprocess.Popen([sys.executable, script, isolated, str(FEW), *here])

    async def check() -> None:
        await until((isolated / "ready").exists)
        request = b"GET /props HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n"
        opened = []
        for _ in range(FEW):
            reader, writer = await asyncio.open_connection("127.0.0.1", free_port)
            writer.write(request)
            opened.append((reader, writer))
        await asyncio.sleep(1)
        assert starved.poll() is None
        (isolated / "release").touch()
        async with asyncio.timeout(PATIENCE):
            answers = [await reader.read() for reader, _ in opened]
        for _, writer in opened:
            writer.close()
        assert {answer.split(b" ")[1] for answer in answers} <= {b"200", b"503"}
        reader, writer = await asyncio.open_connection("127.0.0.1", free_port)
        writer.write(request)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert psutil.Process(starved.pid).num_fds() < FEW // 2

    try:
        play(check())
    finally:
        starved.kill()
        starved.wait()


def test_there_are_never_more_connections_than_descriptors_for_them(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            door.front._most = 5
            crowd = [await asyncio.open_connection("127.0.0.1", free_port) for _ in range(5)]
            await until(lambda: door.front.connections == 5)
            got = await door.raw(b"")
            assert got.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After" in got
            for _, writer in crowd:
                writer.close()
            await until(lambda: door.front.connections == 0)
            assert (await door.get("/health"))[0] == 200

    play(check())


def test_no_descriptor_stays_behind(tmp_path: Path, free_port: int) -> None:
    async def shaky(asked: Asked) -> None:
        if len(door.children["chat"].asked) % 3 == 0:
            asked.die()
        elif len(door.children["chat"].asked) % 3 == 1:
            await asked.stream()
            asked.die()
        else:
            await asked.answer()

    async def check() -> None:
        nonlocal door
        async with open_door(tmp_path, free_port, shaky) as door:
            await asyncio.gather(*(door.post("/completion", data=b"{}") for _ in range(10)))
            before = psutil.Process().num_fds()
            for _ in range(10):
                await asyncio.gather(*(door.post("/completion", data=b"{}") for _ in range(10)))
            await until(lambda: not door.gates["chat"].in_flight())
            await until(lambda: psutil.Process().num_fds() <= before + 2)

    door: Door
    play(check())


def test_a_body_without_room_in_memory_goes_to_disk(tmp_path: Path, free_port: int) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            room = door.front._room
            assert room.lend_memory((16 << 20) - 10)
            body = Body(room)
            await body.take(b"x" * 8)
            await body.take(b"y" * 8)
            await body.take(b"z" * 8)
            await body.finish()
            assert body.data is None
            assert b"".join(body.pieces()) == b"x" * 8 + b"y" * 8 + b"z" * 8
            assert (room._memory, room._disk) == ((16 << 20) - 10, 24)
            body.close()
            assert (room._memory, room._disk) == ((16 << 20) - 10, 0)

    play(check())
