"""Memory and descriptors of the front door under faults: `front_door_soak.py [--minutes 20]`.

Sixteen clients ask without a pause; a child of this program breaks off three answers in ten, half
of them before the first byte; one client in ten leaves early. A line is printed every ten seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import front_door
import psutil

_CLIENTS = 16
_EVERY = 10.0


def child(path: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(front_door.BODY)
        fate = random.random()
        if fate < 0.15:
            writer.transport.abort()
            return
        writer.write(front_door.HEAD)
        for number in range(random.randrange(1, 60)):
            writer.write(front_door.PART)
            await writer.drain()
            await asyncio.sleep(0.001)
            if fate < 0.3 and number > 10:
                writer.transport.abort()
                return
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_unix_server(serve, path, backlog=5)
        await server.serve_forever()

    asyncio.run(main())


async def client(path: str, until: float, seen: Counter[str]) -> None:
    while time.monotonic() < until:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(front_door.ASK)
        if random.random() < 0.1:
            await asyncio.sleep(random.random() * 0.05)
            writer.transport.abort()
            seen["clients that left"] += 1
            continue
        answer = await reader.read(-1)
        writer.close()
        broken = b"upstream_failed" in answer
        seen["broken off" if broken else f"status {answer[9:12].decode()}"] += 1


async def soak(minutes: float, path: str, watched: psutil.Process) -> None:
    seen: Counter[str] = Counter()
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        until = min(end, time.monotonic() + _EVERY)
        await asyncio.gather(*(client(path, until, seen) for _ in range(_CLIENTS)))
        counts = ", ".join(f"{count} {what}" for what, count in sorted(seen.items()))
        megabytes = watched.memory_info().rss / 1e6
        print(f"{megabytes:.1f} MB, {watched.num_fds()} descriptors; {counts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="as-") as folder:
        path, door = Path(folder) / "child.sock", Path(folder) / "door.sock"
        processes = [
            front_door.start(child, str(path)),
            front_door.start(front_door.stand, str(path), str(door)),
        ]
        for socket in (path, door):
            front_door.wait_for(socket)
        try:
            asyncio.run(soak(asked.minutes, str(door), psutil.Process(processes[1].pid)))
        finally:
            for process in processes:
                process.kill()


if __name__ == "__main__":
    main()
