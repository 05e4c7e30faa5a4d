"""What the front door costs: `python tests/benchmarks/front_door.py [--streams 32 --rate 100]`.

Three processes: a server that paces streams of events as llama-server words them, the front door,
and a client that reads all streams at once. The client asks the server directly and through the
door by turns, so that what else the machine does meets both. The server and the client use bare
sockets; their own processor time is printed too, since two cores have to carry all three.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

_EVENT = json.dumps(
    {
        "choices": [{"finish_reason": None, "index": 0, "delta": {"content": " word"}}],
        "created": 1_700_000_000,
        "id": "chatcmpl-0123456789abcdefghijklmnopqrstuv",
        "model": "benchmark",
        "object": "chat.completion.chunk",
    }
)
CHUNK = f"data: {_EVENT}\n\n".encode()
PART = b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
BODY = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}], "stream": True}).encode()
ASK = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


class Paced(asyncio.Protocol):
    """Answers any request with `tokens` events, `rate` a second from the head on."""

    def __init__(self, tokens: int, rate: float) -> None:
        self.left = tokens
        self.gap = 1 / rate
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.seen = b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        if self.seen.endswith(BODY):
            self.transport.write(HEAD)
            self.due = self.loop.time()
            self.beat()

    def beat(self) -> None:
        if self.transport.is_closing():
            return
        if not self.left:
            self.transport.write(b"0\r\n\r\n")
            self.transport.close()
            return
        self.left -= 1
        self.transport.write(PART)
        self.due += self.gap
        self.loop.call_at(self.due, self.beat)


def serve(path: str, tokens: int, rate: float) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Paced(tokens, rate), path, backlog=512)
        await server.serve_forever()

    asyncio.run(main())


def stand(path: str, door: str) -> None:
    from autospec.config.schema import ServerSection  # noqa: PLC0415
    from autospec.config.values import Address  # noqa: PLC0415
    from autospec.daemon.front.server import FrontDoor  # noqa: PLC0415
    from autospec.daemon.gate import Gate  # noqa: PLC0415
    from autospec.engine.launch import Endpoint  # noqa: PLC0415

    async def main() -> None:
        gate = Gate("benchmark")
        gate.open(Endpoint(socket=Path(path)))
        front = FrontDoor({"benchmark": gate}, ServerSection(), {Address(socket=Path(door)): None})
        await front.start()
        await asyncio.Event().wait()

    asyncio.run(main())


async def stream(path: str) -> tuple[int, float, float]:
    """One request: events, seconds to the first of them, seconds from it to the last."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(ASK)
    count, first, last = 0, 0.0, 0.0
    while data := await reader.read(1 << 16):
        if found := data.count(b"data: "):
            last = time.perf_counter()
            first = first or last
            count += found
    writer.close()
    return count, first - began, last - first


async def burst(path: str, streams: int) -> tuple[float, list[float]]:
    """All streams at once: events a second of all together, times to first events."""
    results = await asyncio.gather(*(stream(path) for _ in range(streams)))
    rate = sum((count - 1) / seconds for count, _, seconds in results)
    return rate, [first for _, first, _ in results]


async def lone(path: str, times: int) -> list[float]:
    """Times to the first event of requests one after another, which nothing disturbs."""
    return [(await stream(path))[1] for _ in range(times)]


def busy(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def start(work: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)
    time.sleep(0.2)


def measure(streams: int, tokens: int, rate: float, rounds: int, alone: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="as-") as folder:
        paced, quick, door, quick_door = (
            Path(folder) / f"{name}.sock" for name in ("paced", "quick", "door", "quick-door")
        )
        server = start(serve, str(paced), tokens, rate)
        instant = start(serve, str(quick), 1, 1e6)
        front = start(stand, str(paced), str(door))
        quick_front = start(stand, str(quick), str(quick_door))
        for path in (paced, quick, door, quick_door):
            wait_for(path)
        watched = psutil.Process(front.pid)
        found = run(streams, tokens, rounds, paced, door, psutil.Process(server.pid), watched)
        found |= firsts(alone, quick, quick_door, psutil.Process(quick_front.pid))
        found |= {"rss_mb": watched.memory_info().rss / 1e6, "descriptors": watched.num_fds()}
        for process in (server, instant, front, quick_front):
            process.kill()
            process.join()
    return found


def run(
    streams: int,
    tokens: int,
    rounds: int,
    paced: Path,
    door: Path,
    server: psutil.Process,
    front: psutil.Process,
) -> dict[str, Any]:
    ratios, costs, rates, added = [], [], [], []
    client = psutil.Process()
    others: list[float] = []
    asyncio.run(burst(str(door), streams))
    for _ in range(rounds):
        direct, direct_first = asyncio.run(burst(str(paced), streams))
        before, other, began = busy(front), busy(server) + busy(client), time.perf_counter()
        through, first = asyncio.run(burst(str(door), streams))
        seconds = time.perf_counter() - began
        costs.append((busy(front) - before) / (streams * tokens) * 1e6)
        others.append((busy(server) + busy(client) - other) / seconds)
        ratios.append(through / direct)
        rates.append(through)
        added += [a - b for a, b in zip(sorted(first), sorted(direct_first), strict=True)]
    return {
        "tokens_per_second": statistics.median(rates),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "chunk_us": statistics.median(costs),
        "chunk_us_high": max(costs),
        "server_and_client_cores": statistics.median(others),
        "burst_first_ms": statistics.median(added) * 1e3,
    }


def firsts(times: int, quick: Path, door: Path, front: psutil.Process) -> dict[str, Any]:
    """Added time to the first event, from blocks of requests that take turns; the processor
    time of a whole request."""
    direct: list[float] = []
    through: list[float] = []
    began = busy(front)
    for _ in range(max(1, times // 50)):
        direct += asyncio.run(lone(str(quick), 50))
        through += asyncio.run(lone(str(door), 50))
    return {
        f"first_added_ms_{name}": (percentile(through, share) - percentile(direct, share)) * 1e3
        for name, share in (("median", 0.5), ("p99", 0.99))
    } | {"request_ms": (busy(front) - began) / len(through) * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rate", type=float, default=100.0, help="events a second of a stream")
    parser.add_argument("--tokens", type=int, default=500, help="events of a stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", type=int, default=500, help="requests for the first event")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.streams, asked.tokens, asked.rate, asked.rounds, asked.alone)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{asked.streams} streams of {asked.rate:g} events a second, {asked.rounds} rounds\n"
        f"through the door   {found['tokens_per_second']:.0f} events/s, "
        f"{found['ratio']:.4f} of direct ({found['ratio_low']:.4f} to {found['ratio_high']:.4f})\n"
        f"processor time     {found['chunk_us']:.1f} us an event (at most "
        f"{found['chunk_us_high']:.1f}); server and client use "
        f"{found['server_and_client_cores']:.2f} cores\n"
        f"first event later  {found['first_added_ms_median']:.2f} ms at the median, "
        f"{found['first_added_ms_p99']:.2f} ms at p99; {found['burst_first_ms']:.1f} ms when all "
        f"ask at once\n"
        f"a request          {found['request_ms']:.2f} ms of processor time\n"
        f"front door         {found['rss_mb']:.0f} MB, {found['descriptors']} descriptors"
    )


if __name__ == "__main__":
    main()
