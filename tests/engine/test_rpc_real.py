"""A model spread over a worker of its own, as on several machines: served, measured, lost."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from autospec.calibration.prepare import prepare
from autospec.engine.arguments import bench_argv, server_argv
from autospec.engine.bench import parse_rows
from autospec.engine.devices import list_devices
from autospec.engine.launch import PLAIN, Endpoint, Launch
from autospec.engine.process import run
from autospec.engine.server import Server, ServerDied

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = pytest.mark.real

PATIENCE = 60.0


class Worker:
    def __init__(self, engine: Engine, port: int, log: Path) -> None:
        self.address = f"127.0.0.1:{port}"
        self._log = log
        program = engine.folder / "ggml-rpc-server"
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [program, "--host", "127.0.0.1", "--port", str(port), "--threads", "1"],
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + PATIENCE
        while not self._listens(port):
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    @staticmethod
    def _listens(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def served(self) -> int:
        """How many clients have come so far."""
        return self._log.read_text(errors="replace").count("Accepted client connection")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def worker(engine: Engine, free_port: int, tmp_path: Path) -> Iterator[Worker]:
    started = Worker(engine, free_port, tmp_path / "worker.log")
    yield started
    started.kill()


@pytest.fixture
def launch(models: DemoModels, worker: Worker) -> Launch:
    extra = ("--threads", "1", "--gpu-layers", "99")
    return Launch("far", model=models.draft, context=256, rpc=(worker.address,), extra=extra)


def test_a_worker_serves_and_is_measured_like_the_server_uses_it(
    engine: Engine, launch: Launch, worker: Worker, isolated: Path
) -> None:
    devices = list_devices(engine, launch.rpc)
    assert devices is not None
    assert any(worker.address in f"{one.name} {one.description}" for one in devices)
    prepared = prepare(engine, launch, {})
    before = worker.served()

    async def serve() -> None:
        endpoint = Endpoint(socket=isolated / "far.sock")
        argv = server_argv(engine, prepared.launch, PLAIN, endpoint)
        async with await Server.start(argv, prepared.env, endpoint) as server:
            await server.ready(PATIENCE)
            assert worker.served() > before
            assert (await server.chat("The sun is", tokens=8, within=PATIENCE)).timings.predicted_n
            worker.kill()
            with pytest.raises((httpx.HTTPError, ServerDied)):
                await server.chat("The moon is", tokens=8, within=PATIENCE)
            assert await server.ends_within(PATIENCE)
            died = await server.died()
            assert died.cause.kind == "worker_lost", server.tail

    asyncio.run(serve())


def test_the_benchmark_runs_on_the_worker_too(
    engine: Engine, launch: Launch, worker: Worker
) -> None:
    prepared = prepare(engine, launch, {})
    before = worker.served()
    argv = bench_argv(engine, prepared.launch, which="target")
    assert argv[argv.index("--rpc") + 1] == launch.rpc[0]
    rows: list[str] = []
    wanted = ("-c", "256", "-npp", "0", "-ntg", "2", "-npl", "1,2", "--output-format", "jsonl")
    ended = asyncio.run(run([*argv, *wanted], prepared.env, rows.append))
    assert ended.code == 0, ended.tail
    assert [row.parallel for row in parse_rows(rows)] == [1, 2]
    assert worker.served() > before


def test_a_worker_that_is_not_there_is_named(
    engine: Engine, models: DemoModels, free_port: int, isolated: Path
) -> None:
    gone = f"127.0.0.1:{free_port}"
    launch = Launch("far", model=models.draft, context=256, rpc=(gone,))

    async def serve() -> ServerDied:
        endpoint = Endpoint(socket=isolated / "far.sock")
        argv = server_argv(engine, launch, PLAIN, endpoint)
        server = await Server.start(argv, dict(os.environ), endpoint)
        try:
            with pytest.raises(ServerDied) as raised:
                await server.ready(PATIENCE)
            return raised.value
        finally:
            await server.stop(grace=2.0)

    died = asyncio.run(serve())
    assert died.cause.kind == "worker_lost", died.tail
    assert gone in died.cause.sentence
