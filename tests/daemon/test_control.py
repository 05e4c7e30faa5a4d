from __future__ import annotations

import asyncio
import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from autospec.daemon.control import ControlServer, ask, socket_path
from autospec.errors import AutospecError, DaemonNotRunning


async def echo(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("op") == "refuse":
        raise AutospecError("not now")
    return {"got": request}


async def asked(request: dict[str, Any]) -> dict[str, Any]:
    return await asyncio.to_thread(ask, request)


def test_a_question_is_answered_over_the_socket() -> None:
    async def main() -> dict[str, Any]:
        server = await ControlServer.open(echo)
        try:
            return await asked({"op": "status"})
        finally:
            await server.close()

    assert asyncio.run(main()) == {"got": {"op": "status"}}
    assert not socket_path().exists()


def test_without_a_daemon_the_error_says_so_and_what_to_do() -> None:
    with pytest.raises(DaemonNotRunning, match="no autospec daemon") as error:
        ask({"op": "status"})
    assert "autospec serve" in (error.value.hint or "")


def test_only_the_owner_can_open_the_socket() -> None:
    async def main() -> tuple[int, int]:
        server = await ControlServer.open(echo)
        try:
            path = socket_path()
            return stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)
        finally:
            await server.close()

    assert asyncio.run(main()) == (0o600, 0o700)


def test_a_second_daemon_is_refused_and_the_first_goes_on() -> None:
    async def main() -> dict[str, Any]:
        server = await ControlServer.open(echo)
        try:
            with pytest.raises(AutospecError, match="another autospec daemon"):
                await ControlServer.open(echo)
            return await asked({"still": "there"})
        finally:
            await server.close()

    assert asyncio.run(main()) == {"got": {"still": "there"}}


def test_a_socket_left_by_a_killed_daemon_is_taken_over() -> None:
    socket_path().parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(socket_path()))

    async def main() -> dict[str, Any]:
        server = await ControlServer.open(echo)
        try:
            return await asked({"op": "status"})
        finally:
            await server.close()

    assert asyncio.run(main()) == {"got": {"op": "status"}}


def test_a_refusal_reaches_the_one_who_asked() -> None:
    async def main() -> None:
        server = await ControlServer.open(echo)
        try:
            with pytest.raises(AutospecError, match="not now"):
                await asked({"op": "refuse"})
        finally:
            await server.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "junk", [b"\n", b"[1]\n", b"{", b"\xff\xfe\n", b"x" * 200_000, b"[" * 9999 + b"\n"]
)
def test_junk_gets_an_error_or_a_closed_connection_and_the_server_lives_on(junk: bytes) -> None:
    def send() -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(socket_path()))
            try:
                connection.sendall(junk)
                connection.shutdown(socket.SHUT_WR)
                return connection.recv(65536)
            except ConnectionError:
                return b""

    async def main() -> tuple[bytes, dict[str, Any]]:
        server = await ControlServer.open(echo)
        try:
            return await asyncio.to_thread(send), await asked({"op": "status"})
        finally:
            await server.close()

    reply, after = asyncio.run(main())
    assert after == {"got": {"op": "status"}}
    assert not reply or "error" in json.loads(reply)


def test_a_fault_in_the_answer_is_told_and_the_server_lives_on() -> None:
    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "nan":
            return {"rate": float("nan")}
        return {"missing": {}["key"]}

    async def main() -> None:
        server = await ControlServer.open(answer)
        try:
            with pytest.raises(AutospecError, match="a fault of autospec: KeyError"):
                await asked({"op": "fault"})
            with pytest.raises(AutospecError, match="JSON compliant"):
                await asked({"op": "nan"})
        finally:
            await server.close()

    asyncio.run(main())


def test_a_path_that_no_socket_can_have_is_refused_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(isolated / ("x" * 100)))
    for attempt in (lambda: asyncio.run(ControlServer.open(echo)), lambda: ask({})):
        with pytest.raises(AutospecError, match="too long for a socket") as error:
            attempt()
        assert "XDG_RUNTIME_DIR" in (error.value.hint or "")


def test_a_folder_in_the_place_of_the_socket_is_refused_and_the_lock_is_free_again() -> None:
    socket_path().mkdir(parents=True)
    with pytest.raises(AutospecError, match="cannot listen on"):
        asyncio.run(ControlServer.open(echo))
    socket_path().rmdir()

    async def main() -> None:
        await (await ControlServer.open(echo)).close()

    asyncio.run(main())
