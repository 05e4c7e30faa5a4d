"""What children and clients send through the front door, cut anywhere and of any shape."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from doors import Asked, open_door, play
from hostile import Target, hostile, kept_within_bounds, seconds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autospec.daemon.front.child_metrics import merged
from autospec.daemon.front.scan import TooComplex, form_model, scan

pytestmark = pytest.mark.fuzz

BODY = json.dumps(
    {
        "stream": True,
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]},
            {"role": "user", "content": 'a "quoted" \\ text with {braces}'},
        ],
        "model": "chat",
    }
)
FORM = (
    '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nchat\r\n'
    '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\x01\r\n--b--\r\n'
)
PAGE = (
    "# HELP llamacpp:x Tokens.\n# TYPE llamacpp:x counter\nllamacpp:x 12\n"
    'llamacpp:per_pos{position="0",model="m"} 7\n'
)
STREAM = (
    'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    'event: message\r\ndata: {"b": 1}\r\n\r\n: a comment\n\ndata: one\ndata: two\n\n'
    "data: [DONE]\n\n"
)


def pieces(text: str, size: int = 1 << 20) -> Iterator[bytes]:
    raw = text.encode("utf-8", "surrogatepass")
    return (raw[at : at + size] for at in range(0, len(raw), size))


TARGETS = {
    "a body": Target(lambda text: scan(pieces(text), media=True), (BODY,), (TooComplex,)),
    "a form": Target(lambda text: form_model(pieces(text)), (FORM,)),
    "metrics of children": Target(
        lambda text: merged({"chat": text.encode("utf-8", "surrogatepass"), "b": b""}),
        (PAGE,),
        check=lambda page: page == b"" or page.endswith(b"\n"),
    ),
}
UNITS = {
    "opening": lambda n: "[" * n,
    "objects": lambda n: '{"a":' * (n // 5),
    "quotes": lambda n: '"' * n,
    "backslashes": lambda n: '"' + "\\" * n,
    "commas": lambda n: "[" + ",".join(['""'] * (n // 3)),
    "one string": lambda n: '"' + "a" * n,
    "labels": lambda n: "x{" + 'a="b",' * (n // 6) + "} 1\n",
    "lines": lambda n: "x 1\n" * (n // 4),
    "fields": lambda n: 'name="model"\r\n' * (n // 14),
}


@pytest.mark.parametrize("name", TARGETS)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_requests_and_pages_stay_within_bounds(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    kept_within_bounds(target, data.draw(hostile(target.seeds)))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_the_request_and_not_with_its_square(name: str, unit: str) -> None:
    small, large = (seconds(TARGETS[name], UNITS[unit](size)) for size in (1 << 14, 1 << 17))
    assert large <= 4 * 8 * max(small, 0.0025), (small, large)


def events(stream: bytes) -> list[str]:
    """The data of each event, as a client reads them (WHATWG, server-sent events)."""
    text = stream.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    found, lines = [], []
    for line in text.split("\n"):
        if line.startswith("data:"):
            lines.append(line.removeprefix("data:").removeprefix(" "))
        elif line == "" and lines:
            found.append("\n".join(lines))
            lines = []
    return found


def own_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def streamed(parts: list[bytes], *, dies: bool) -> bytes:
    """What a client gets of a stream that comes in `parts`, and then ends or breaks off."""

    async def child(asked: Asked) -> None:
        await asked.stream()
        for part in parts:
            await asked.chunk(part)
            await asyncio.sleep(0)
        if dies:
            asked.die()
        else:
            await asked.chunk(b"")

    with tempfile.TemporaryDirectory(prefix="as-") as folder:
        async with open_door(Path(folder), own_port(), child) as door:
            url = f"{door.base}/v1/chat/completions"
            async with door.client.post(url, json={"model": "chat"}) as answer:
                assert answer.status == 200
                return await answer.read()


@settings(deadline=None, max_examples=max(25, settings().max_examples // 10))
@given(
    text=hostile((STREAM,)).map(lambda text: text[:20_000]),
    cuts=st.lists(st.integers(0, 20_000), max_size=6),
    dies=st.booleans(),
)
def test_a_stream_passes_untouched_and_one_that_breaks_ends_in_an_error(
    text: str, cuts: list[int], dies: bool
) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    places = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    parts = [raw[a:b] for a, b in itertools.pairwise(places) if b > a]

    async def check() -> None:
        try:
            got = await streamed(parts, dies=dies)
        except aiohttp.ClientPayloadError:
            pytest.fail("the client was cut off without a word")
        if dies:
            # What a child wrote in the moment of its death may be lost with it.
            sent, _, last = got.rpartition(b"\n\ndata: ")
            assert raw.startswith(sent)
            assert json.loads(events(got)[-1])["error"]["code"] == "upstream_failed", last
        else:
            assert got == raw

    play(check())
