"""The child is killed again and again while requests come in a steady stream."""

from __future__ import annotations

import json
import random
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from served import Served, until

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

pytestmark = [pytest.mark.real, pytest.mark.fault]

KILLS = 10
CLIENTS = 3
TOKENS = 8


@dataclass
class Load:
    """Short requests, one after the other from each client, every second one streamed."""

    url: str
    over: threading.Event = field(default_factory=threading.Event)
    whole: int = 0
    cut: int = 0
    lost: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, number: int) -> None:
        turn = 0
        with httpx.Client(base_url=self.url, timeout=120) as client:
            while not self.over.is_set():
                turn += 1
                asked = {
                    "messages": [{"role": "user", "content": f"Count from {number} to {turn}."}],
                    "max_tokens": TOKENS,
                    "temperature": 0,
                    "stream": turn % 2 == 0,
                }
                try:
                    kind = (
                        self._streamed(client, asked)
                        if turn % 2 == 0
                        else self._plain(client, asked)
                    )
                except httpx.HTTPError as error:
                    kind = repr(error)
                with self._lock:
                    if kind == "whole":
                        self.whole += 1
                    elif kind == "cut":
                        self.cut += 1
                    else:
                        self.lost.append(kind)

    def _plain(self, client: httpx.Client, asked: dict[str, object]) -> str:
        answer = client.post("/v1/chat/completions", json=asked)
        if answer.status_code != 200:
            return f"{answer.status_code}: {answer.text}"
        (choice,) = answer.json()["choices"]
        return "whole" if choice["message"]["content"] else "an empty answer"

    def _streamed(self, client: httpx.Client, asked: dict[str, object]) -> str:
        """A stream that had begun may be cut, with an error event as its last; none is spliced."""
        with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
            if answer.status_code != 200:
                answer.read()
                return f"{answer.status_code}: {answer.text}"
            data = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
        if data and data[-1] == "[DONE]":
            ids = {json.loads(event)["id"] for event in data[:-1]}
            return "whole" if len(ids) == 1 else f"spliced: {ids}"
        return "cut" if data and "error" in json.loads(data[-1]) else f"no end: {data[-1:]}"


@pytest.fixture
def served(tmp_path: Path, engine: Engine, models: DemoModels, free_port: int) -> Iterator[Served]:
    config = tmp_path / "autospec.toml"
    config.write_text(
        f'[server]\nlisten = "127.0.0.1:{free_port}"\n[models.small]\npath = "{models.draft}"\n'
        'context = 2048\nslots = 2\nextra = ["--threads", "1"]\n'
    )
    arguments = ("--config", str(config), "--engine", str(engine.server), "--no-calibrate")
    served = Served(tmp_path / "log", *arguments)
    yield served
    served.clean_up()


def away_beyond_loading(served: Served, killed: float) -> float:
    """Seconds from the kill until the model was ready again, less those that it took to load."""
    status = served.status()
    assert status is not None
    last = {event["text"].partition(":")[0]: event["at"] for event in status["events"]}
    assert killed < last["starting"] < last["ready"]
    return float(last["starting"] - killed)


def test_every_request_that_had_not_begun_is_answered_once(served: Served, free_port: int) -> None:
    served.until("ready", "small")
    load = Load(f"http://127.0.0.1:{free_port}")
    clients = [threading.Thread(target=load.client, args=(n,)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    chance = random.Random(7)
    beyond = []
    try:
        for kill in range(KILLS):
            before = load.whole
            until(lambda before=before: load.whole > before, lambda: served.output)
            time.sleep(chance.uniform(0.0, 0.5))
            child, killed = served.child("small"), time.time()
            child.send_signal(signal.SIGKILL)
            until(lambda kill=kill: (served.model("small") or {"deaths": 0})["deaths"] > kill)
            served.until("ready", "small")
            beyond.append(away_beyond_loading(served, killed))
    finally:
        load.over.set()
        for client in clients:
            client.join()
    assert load.lost == []
    assert load.whole > KILLS
    assert statistics.median(beyond) < 1.0, beyond
    model = served.until("ready", "small")
    assert model["deaths"] == KILLS
    assert served.output.count("starting again at once") == KILLS
    assert served.end(signal.SIGTERM) == 0, served.output
