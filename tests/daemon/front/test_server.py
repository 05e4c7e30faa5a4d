"""The front door's own pages, several models, reload and the end."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from doors import Asked, Door, echo, open_door, play, until
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from autospec.config.schema import ServerSection
from autospec.config.values import Address
from autospec.daemon.front.child_metrics import merged
from autospec.daemon.front.server import FrontDoor
from autospec.daemon.gate import Gate
from autospec.errors import ServeError

TWO = ("chat", "code")
ENGINE_MODELS = {"object": "list", "data": [{"id": "/m.gguf", "meta": {"n_vocab": 7}}]}
ENGINE_METRICS = """\
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 12
junk{{{ 1
llamacpp:broken nan
llamacpp:spec{position="0",model="own"} 3
"""
STATUS = [
    {
        "name": "chat",
        "state": "ready",
        "for_seconds": 4.5,
        "fault": None,
        "deaths": 2,
        "restarts_for_tuning": 1,
        "setting": {"type": "draft-simple", "n_max": 8, "predicted_rate": 31.5, "live": False},
        "live": {
            "acceptance": 0.75,
            "mean_rate": 30.0,
            "rate": None,
            "by_position": [{"position": 1, "share": 0.9}, {"position": 2, "share": None}],
        },
    },
    {"name": "code", "state": "parked somewhere new", "setting": None, "live": None},
]


async def engine(asked: Asked) -> None:
    if asked.line.startswith("GET /v1/models"):
        await asked.answer(json.dumps(ENGINE_MODELS).encode())
    elif asked.line.startswith("GET /metrics"):
        await asked.answer(ENGINE_METRICS.encode())
    else:
        await echo(asked)


def test_the_model_of_the_body_chooses_the_child(tmp_path: Path, free_port: int) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port, names=TWO) as door:
            for name in TWO:
                await door.post("/v1/chat/completions", json={"model": name})
            await door.post("/completion", json={"prompt": "x"})
            await door.post("/v1/embeddings", data=b'{"input": "' + b"x" * 200_000 + b'", '
                            b'"model": "code"}')  # fmt: skip
            await door.post("/upstream/code/v1/completions", json={"model": "chat"})
            form = {"file": io.BytesIO(b"\x00"), "model": "code"}
            await door.post("/v1/audio/transcriptions", data=form)
            lines = {name: [a.line.split()[1] for a in door.children[name].asked] for name in TWO}
            assert lines == {
                "chat": ["/v1/chat/completions", "/completion"],
                "code": [
                    "/v1/chat/completions",
                    "/v1/embeddings",
                    "/v1/completions",
                    "/v1/audio/transcriptions",
                ],
            }

    play(check())


def test_an_unknown_name_is_told_the_valid_ones(tmp_path: Path, free_port: int) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port, names=TWO) as door:
            status, body = await door.post("/v1/chat/completions", json={"model": "gpt-9\ud800"})
            error = json.loads(body)["error"]
            assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
            assert error["type"] == "invalid_request_error"
            assert error["message"].endswith("Valid models: chat, code")
            assert (await door.get("/upstream/x/props"))[0] == 404

    play(check())


def test_one_model_answers_to_any_name(tmp_path: Path, free_port: int) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            assert (await door.post("/v1/completions", json={"model": "gpt-4"}))[0] == 200

    play(check())


def test_models_are_listed_under_the_names_that_requests_use(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port, engine, names=TWO) as door:
            door.gates["code"].hold("loading")
            status, body = await door.get("/v1/models")
            first, second = json.loads(body)["data"]
            assert (status, first["id"], first["meta"]) == (200, "chat", {"n_vocab": 7})
            assert second == {"id": "code", "object": "model", "owned_by": "llamacpp"}
            status, body = await door.get("/upstream/chat/v1/models")
            assert json.loads(body) == ENGINE_MODELS

    play(check())


def test_the_page_of_several_models_leads_to_each(tmp_path: Path, free_port: int) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port, names=TWO) as door:
            _, page = await door.get("/")
            assert b'<a href="upstream/code/">code</a>' in page
            url = f"{door.base}/upstream/code?a=b"
            async with door.client.get(url, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (308, "/upstream/code/?a=b")

    play(check())


def test_health_says_whether_requests_are_taken_and_nothing_else(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port, names=TWO) as door:
            door.gates["chat"].hold("secret reason")
            assert await door.get("/health") == (200, b'{"status": "ok"}')
            status, body = await door.get("/upstream/chat/health")
            assert (status, b"secret" in body) == (503, False)
            door.gates["code"].shut("failed")
            assert (await door.get("/v1/health"))[0] == 503

    play(check())


def samples(page: str) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = (sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_metrics_tell_of_the_door_supervision_tuning_and_the_children(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port, engine, names=TWO, status=STATUS) as door:
            await door.post("/completion", data=b"hello")
            page = samples(await door.metrics())
        chat = "model=chat"
        expected: dict[tuple[str, ...], float] = {
            ("autospec_requests_total", "code=200", chat): 1,
            ("autospec_request_bytes_total", chat): 5,
            ("autospec_response_bytes_total", chat): 5,
            ("autospec_first_byte_seconds_count", chat): 1,
            ("autospec_requests_waiting", chat): 0,
            ("autospec_model_state", chat, "state=ready"): 1,
            ("autospec_model_state", chat, "state=failed"): 0,
            ("autospec_model_state", "model=code", "state=parked somewhere new"): 1,
            ("autospec_child_deaths_total", chat): 2,
            ("autospec_tuning_restarts_total", chat): 1,
            ("autospec_setting_n_max", chat): 8,
            ("autospec_predicted_tokens_per_second", chat): 31.5,
            ("autospec_measured_tokens_per_second", chat): 30,
            ("autospec_acceptance_ratio", chat): 0.75,
            ("autospec_position_acceptance", chat, "position=1"): 0.9,
            ("llamacpp:tokens_predicted_total", chat): 12,
            ("llamacpp:tokens_predicted_total", "model=code"): 12,
            ("llamacpp:spec", "exported_model=own", chat, "position=0"): 3,
        }
        assert {key: page.get(key) for key in expected} == expected
        assert ("autospec_recent_tokens_per_second", chat) not in page
        assert not any("broken" in key[0] and "llamacpp" in key[0] for key in page)

    play(check())


def test_a_child_that_does_not_answer_costs_its_own_metrics_only(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autospec.daemon.front.server._PAGE_SECONDS", 0.2)

    async def hang(asked: Asked) -> None:
        await asked.gone()

    async def flood(asked: Asked) -> None:
        await asked.answer(b"a 1\n" * (1 << 19))

    async def check() -> None:
        async with open_door(tmp_path, free_port, engine, hang, names=TWO) as door:
            page = samples(await door.metrics())
            assert ("llamacpp:tokens_predicted_total", "model=chat") in page
            assert ("llamacpp:tokens_predicted_total", "model=code") not in page
            door.children["code"].play = flood
            assert ("a", "model=code") not in samples(await door.metrics())

    play(check())


@given(st.lists(st.binary(max_size=80) | st.text().map(str.encode), max_size=5), st.data())
def test_whatever_children_say_the_page_can_be_read(junk: list[bytes], data: st.DataObject) -> None:
    lines = ENGINE_METRICS.encode().splitlines() + junk
    pages = {name: b"\n".join(data.draw(st.permutations(lines))) for name in TWO}
    for family in text_string_to_metric_families(merged(pages).decode()):
        assert all(sample.labels["model"] in TWO for sample in family.samples)


def address_of(port: int) -> Address:
    return Address("127.0.0.1", port)


def test_an_update_changes_models_rules_and_addresses_and_drops_no_request(
    tmp_path: Path, free_port: int, isolated: Path
) -> None:
    go_on = asyncio.Event()

    async def slow(asked: Asked) -> None:
        await asked.stream()
        await asked.chunk(b"data: 1\n\n")
        await go_on.wait()
        await asked.chunk(b"data: 2\n\n")
        await asked.chunk(b"")

    async def check() -> None:
        async with open_door(tmp_path, free_port, slow, echo, names=TWO) as door:
            url = f"{door.base}/completion"
            async with door.client.post(url, json={"model": "chat"}) as answer:
                assert await answer.content.readany() == b"data: 1\n\n"
                settings = ServerSection.model_validate({"max_body": 2048})
                unix = Address(socket=isolated / "own.sock")
                gates = {"code": door.gates["code"]}
                await door.front.update(gates, settings, {door.address: None, unix: "code"})
                go_on.set()
                assert await answer.read() == b"data: 2\n\n"
            assert (await door.post("/completion", data=b"x" * 3000))[0] == 413
            assert (await door.post("/completion", json={"model": "chat"}))[0] == 200
            assert len(door.children["chat"].asked) == 1
            reader, writer = await asyncio.open_unix_connection(str(unix.socket))
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n")
            assert b"X-Line: GET /metrics" in await reader.read()
            writer.close()
            await door.front.update(gates, settings, {door.address: None})
            assert not (isolated / "own.sock").exists()

    play(check())


def test_an_update_that_cannot_be_carried_out_changes_nothing(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
            port = taken.sockets[0].getsockname()[1]
            settings = ServerSection()
            with pytest.raises(ServeError, match="cannot listen on"):
                await door.front.update(door.gates, settings, {address_of(port): None})
            missing = settings.model_copy(update={"api_key_file": tmp_path / "none"})
            with pytest.raises(ServeError, match="cannot read"):
                await door.front.update(door.gates, missing, {door.address: None})
            taken.close()
            assert (await door.post("/completion", data=b"{}"))[0] == 200

    play(check())


def test_a_socket_is_taken_over_from_the_dead_only(isolated: Path) -> None:
    path = isolated / "door.sock"
    address = Address(socket=path)

    async def check() -> None:
        def door() -> FrontDoor:
            return FrontDoor({"m": Gate("m")}, ServerSection(), {address: None})

        first = door()
        await first.start()
        with pytest.raises(ServeError, match="another program"):
            await door().start()
        await asyncio.sleep(0.05)
        await first.stop()
        stale = await asyncio.start_unix_server(lambda *_: None, str(path))
        stale.close()
        assert path.exists()
        second = door()
        await second.start()
        await second.stop()
        path.write_text("a file of somebody's")
        with pytest.raises(ServeError, match="no socket"):
            await door().start()
        assert path.read_text()

    play(check())


def test_a_stop_lets_requests_end_and_takes_no_new_ones(tmp_path: Path, free_port: int) -> None:
    go_on = asyncio.Event()

    async def slow(asked: Asked) -> None:
        await go_on.wait()
        await echo(asked)

    async def check() -> None:
        async with open_door(tmp_path, free_port, slow) as door:
            request = asyncio.create_task(door.post("/completion", data=b"{}"))
            await until(lambda: door.children["chat"].asked)
            stop = asyncio.create_task(door.front.stop())
            await asyncio.sleep(0.1)
            assert not stop.done()
            with pytest.raises(OSError, match=r"."):
                await asyncio.open_connection("127.0.0.1", free_port)
            go_on.set()
            assert await request == (200, b"{}")
            await stop

    play(check())


@pytest.mark.parametrize("hurried", [True, False])
def test_what_does_not_end_is_cut(tmp_path: Path, free_port: int, hurried: bool) -> None:
    async def hang(asked: Asked) -> None:
        await asked.gone()

    async def ask(door: Door) -> Any:
        return await door.raw(b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")

    async def check() -> None:
        async with open_door(tmp_path, free_port, hang) as door:
            request = asyncio.create_task(ask(door))
            await until(lambda: door.children["chat"].asked)
            stop = asyncio.create_task(door.front.stop(30 if hurried else 0.2))
            if hurried:
                await asyncio.sleep(0.1)
                door.front.hurry()
            async with asyncio.timeout(10):
                await stop
                assert await request == b""
            await until(lambda: not door.gates["chat"].in_flight())

    play(check())
