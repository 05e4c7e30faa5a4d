"""A real llama-server under the live library, asked without anybody between."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from autospec.engine.arguments import server_argv
from autospec.engine.environment import child_environment
from autospec.engine.find import Engine
from autospec.engine.launch import Endpoint, Launch, Speculation
from autospec.engine.live.applier import LiveSession
from autospec.engine.metrics import ServerCounters, parse_metrics

PROMPTS = (
    "The history of the sea begins with",
    "def fibonacci(n):\n    ",
    "One, two, three, four, five, six,",
    "Dear Sir, I am writing to you because",
    "The three largest cities of France are",
    "Water boils when",
)


@dataclass(frozen=True)
class Answer:
    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    body: Mapping[str, Any]


class Asked:
    """A running server; `session` is None for the stock engine."""

    def __init__(self, url: str, session: LiveSession | None) -> None:
        self.session = session
        self._client = httpx.Client(base_url=url, timeout=600, trust_env=False)

    def answer(self, prompt: str | list[int], tokens: int = 24, **more: Any) -> Answer:
        asked = {
            "prompt": prompt,
            "n_predict": tokens,
            "temperature": 0,
            "cache_prompt": False,
            "return_tokens": True,
            **more,
        }
        response = self._client.post("/completion", json=asked)
        response.raise_for_status()
        body = response.json()
        timings = body["timings"]
        return Answer(
            tuple(body["tokens"]),
            timings.get("draft_n", 0),
            timings.get("draft_n_accepted", 0),
            body,
        )

    def streamed(self, prompt: str, tokens: int = 24) -> list[str]:
        """The pieces of a greedy answer as they come."""
        asked = {
            "prompt": prompt, "n_predict": tokens, "temperature": 0, "cache_prompt": False,
            "stream": True,
        }  # fmt: skip
        with self._client.stream("POST", "/completion", json=asked) as response:
            response.raise_for_status()
            return re.findall(r'"content":"((?:[^"\\]|\\.)*)"', "".join(response.iter_text()))

    def tokenize(self, text: str) -> list[int]:
        response = self._client.post("/tokenize", json={"content": text})
        return [int(token) for token in response.json()["tokens"]]

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Until it is ready, however long a busy machine takes."""
        while True:
            assert process.poll() is None, f"llama-server ended: {process.returncode}"
            try:
                if self._client.get("/health").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)

    def counters(self) -> ServerCounters:
        return parse_metrics(self._client.get("/metrics").text)

    def close(self) -> None:
        self._client.close()


@contextmanager
def asked(
    engine: Engine,
    models: tuple[Path, Path],
    speculation: Speculation,
    *,
    session: LiveSession | None = None,
    slots: int = 1,
    extra: tuple[str, ...] = (),
) -> Iterator[Asked]:
    """Serve `models` (target, draft) until the block ends; one server at a time, please."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = Endpoint(port=probe.getsockname()[1])
    launch = Launch(
        "live",
        model=models[0],
        draft=models[1],
        context=512 * slots,
        slots=slots,
        extra=("--threads", "2", "--seed", "1", *extra),
    )
    environment, _ = child_environment(os.environ, {})
    if session is not None:
        environment = session.environment(environment)
    process = subprocess.Popen(
        server_argv(engine, launch, speculation, endpoint),
        env=environment,
        pass_fds=session.descriptors if session is not None else (),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = Asked(f"http://{endpoint.host}:{endpoint.port}", session)
    try:
        server.wait(process)
        yield server
        assert process.poll() is None, f"llama-server died: {process.returncode}"
    finally:
        server.close()
        process.terminate()
        process.wait(60)
