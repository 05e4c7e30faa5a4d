"""One running llama-server: the process and an HTTP client for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import httpx

from autospec.engine import process as processes
from autospec.engine.failures import ExitCause, explain_exit
from autospec.engine.launch import Endpoint
from autospec.engine.metrics import ServerCounters, parse_metrics
from autospec.engine.observe import SlotState, Timings, parse_slots, parse_timings
from autospec.errors import EngineOutputError, ServeError

_TAIL_LINES = 60
_POLL_SECONDS = 0.1
_PROBE_TIMEOUT = httpx.Timeout(5.0)


class ServerDied(ServeError):
    """The server ended while it was needed; `cause` says how, `tail` holds its last lines."""

    def __init__(self, cause: ExitCause, tail: Sequence[str]) -> None:
        super().__init__(cause.sentence)
        self.cause = cause
        self.tail = tuple(tail)


@dataclass(frozen=True)
class Completion:
    """`body` is the answer as JSON text."""

    body: str
    timings: Timings

    @property
    def text(self) -> str:
        """What was written. EngineOutputError when the answer is not shaped as one."""
        try:
            content = json.loads(self.body)["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError) as error:
            raise EngineOutputError("an unreadable completion", line=self.body) from error
        return str(content)


class Server:
    """A started `llama-server`. Make it with `start`; `stop` it, or leave an `async with`."""

    def __init__(self, process: asyncio.subprocess.Process, endpoint: Endpoint) -> None:
        self.process = process
        self.endpoint = endpoint
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.client = http_client(endpoint)
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        endpoint: Endpoint,
        on_line: Callable[[str], None] = lambda _line: None,
    ) -> Self:
        """Start `argv`, which must listen on `endpoint`; its output goes to `on_line`."""
        process = await processes.start(argv, env, merge_stderr=True)
        server = cls(process, endpoint)

        def take(line: str) -> None:
            server.tail.append(line)
            on_line(line)

        assert process.stdout is not None
        server._reader = asyncio.create_task(processes.each_line(process.stdout, take))
        return server

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ready(self, within: float) -> None:
        """Wait until /health says ok: ServerDied if it ends first, ServeError after `within` s."""
        deadline = time.monotonic() + within
        while True:
            if self.process.returncode is not None:
                raise await self.died()
            with contextlib.suppress(httpx.HTTPError):
                if (await self.client.get("/health", timeout=_PROBE_TIMEOUT)).status_code == 200:
                    return
            if time.monotonic() > deadline:
                raise ServeError(
                    f"llama-server was not ready after {within:.0f} s",
                    hint="raise [engine] start_timeout if the model needs longer to load",
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def died(self) -> ServerDied:
        """The end of an ended server, explained. Waits for the process and its last lines."""
        code = await self.process.wait()
        await self._drain_output()
        return ServerDied(explain_exit(code, list(self.tail)), self.tail)

    async def counters(self) -> ServerCounters:
        """The totals of /metrics. httpx.HTTPError or EngineOutputError when there are none."""
        response = await self.client.get("/metrics", timeout=_PROBE_TIMEOUT)
        response.raise_for_status()
        return parse_metrics(response.text)

    async def slots(self) -> tuple[SlotState, ...]:
        response = await self.client.get("/slots", timeout=_PROBE_TIMEOUT)
        response.raise_for_status()
        return tuple(parse_slots(response.text))

    async def chat(self, prompt: str, *, tokens: int, within: float) -> Completion:
        """A greedy answer of at most `tokens` tokens that uses no prompt cache.

        httpx.HTTPError when it fails or takes longer than `within` seconds, EngineOutputError
        when the answer carries no timings.
        """
        response = await self.client.post(
            "/v1/chat/completions",
            json={
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": tokens,
                "temperature": 0,
                "cache_prompt": False,
            },
            timeout=httpx.Timeout(within),
        )
        response.raise_for_status()
        if (timings := parse_timings(response.content)) is None:
            raise EngineOutputError("a completion without timings", line=response.text)
        return Completion(response.text, timings)

    async def stop(self, grace: float = 10.0) -> int:
        """End it (SIGTERM, after `grace` s SIGKILL) and return its exit status."""
        await self.client.aclose()
        code = await processes.stop(self.process, grace)
        await self._drain_output()
        return code

    async def _drain_output(self) -> None:
        if self._reader is not None:
            # A grandchild may hold the pipe open for ever.
            await asyncio.wait([self._reader], timeout=1.0)
            self._reader.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.stop(grace=2.0))


def http_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """A client whose paths are relative to `endpoint`; it follows no redirect and no proxy."""
    headers = {}
    if endpoint.api_key_file is not None:
        headers["Authorization"] = f"Bearer {first_key(endpoint)}"
    if endpoint.socket is not None:
        transport = httpx.AsyncHTTPTransport(uds=str(endpoint.socket))
        return httpx.AsyncClient(transport=transport, base_url="http://llama", headers=headers)
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return httpx.AsyncClient(
        base_url=f"http://{host}:{endpoint.port}", headers=headers, trust_env=False
    )


def first_key(endpoint: Endpoint) -> str:
    """The first key of the endpoint's key file (one a line, `#` starts a comment)."""
    assert endpoint.api_key_file is not None
    try:
        lines = endpoint.api_key_file.read_text().splitlines()
    except OSError as error:
        raise ServeError(f"cannot read the API key file: {error}") from error
    for line in lines:
        if (key := line.strip()) and not key.startswith("#"):
            return key
    raise ServeError(f"{endpoint.api_key_file} holds no key", hint="write one key on a line")
