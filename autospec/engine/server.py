"""One running llama-server: the process and an HTTP client for it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import signal
import ssl
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
from autospec.engine.waiting import to_the_end
from autospec.errors import EngineOutputError, ServeError

_TAIL_LINES = 60
_LONGEST_LINE = 4000
_POLL_SECONDS = 0.1
PROBE_SECONDS = 5.0

Message = Mapping[str, str]
"""One turn of a conversation: `role` and `content`."""


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

    def __init__(self, program: processes.Program, client: httpx.AsyncClient) -> None:
        self.program = program
        self.process = process = program.process
        self.client = client
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.exit = asyncio.create_task(process.wait())
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        endpoint: Endpoint,
        on_line: Callable[[str], None] = lambda _line: None,
        descriptors: Sequence[int] = (),
    ) -> Self:
        """Start `argv`, which must listen on `endpoint`; its output goes to `on_line`, and it is
        given `descriptors`.

        OSError when it cannot be started, ServeError when somebody else answers on `endpoint`
        or its key file cannot be read.
        """
        client = http_client(endpoint)
        try:
            await _make_way(endpoint)
            program = await processes.start(argv, env, merge_stderr=True, descriptors=descriptors)
        except BaseException:
            await client.aclose()
            raise
        server = cls(program, client)

        def take(line: str) -> None:
            server.tail.append(line[:_LONGEST_LINE])
            on_line(line)

        assert server.process.stdout is not None
        server._reader = asyncio.create_task(processes.each_line(server.process.stdout, take))
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
            left = deadline - time.monotonic()
            with contextlib.suppress(httpx.HTTPError):
                await self._get("/health", max(_POLL_SECONDS, min(PROBE_SECONDS, left)))
                return
            if left <= 0:
                raise ServeError(
                    f"llama-server was not ready after {within:.0f} s",
                    hint="raise [engine] start_timeout if the model needs longer to load",
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def ends_within(self, seconds: float) -> bool:
        """Wait so long for the process to end; whether it has."""
        await asyncio.wait({self.exit}, timeout=seconds)
        return self.process.returncode is not None

    async def died(self) -> ServerDied:
        """The end of an ended server, explained. Waits for the process and its last lines."""
        code = await processes.exited(self.process)
        await self._drain_output()
        return ServerDied(explain_exit(code, list(self.tail)), self.tail)

    async def counters(self) -> ServerCounters:
        """The totals of /metrics. httpx.HTTPError or EngineOutputError when there are none."""
        return parse_metrics((await self._get("/metrics", PROBE_SECONDS)).text)

    async def slots(self) -> tuple[SlotState, ...]:
        """What the slots do. httpx.HTTPError or EngineOutputError when that is not to be had."""
        return tuple(parse_slots((await self._get("/slots", PROBE_SECONDS)).text))

    async def _get(self, path: str, within: float) -> httpx.Response:
        """A page, whole and good, within so many seconds; httpx.HTTPError otherwise."""
        try:
            # httpx counts from byte to byte, and a hung server may dribble.
            async with asyncio.timeout(within):
                response = await self.client.get(path, timeout=None)
        except TimeoutError:
            raise httpx.ReadTimeout(f"{path} was not answered within {within:.1f} s") from None
        response.raise_for_status()
        return response

    async def chat(
        self, prompt: str | Sequence[Message], *, tokens: int, within: float
    ) -> Completion:
        """A greedy answer of at most `tokens` tokens that uses no prompt cache.

        `prompt` is a user's request, or a conversation that ends with one.
        httpx.HTTPError when it fails or takes longer than `within` seconds, EngineOutputError
        when the answer carries no timings.
        """
        asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        response = await self.client.post(
            "/v1/chat/completions",
            json={
                "messages": list(asked),
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

    async def save_slot(self, slot: int, name: str) -> int:
        """Write the cache of an idle slot to the file `name` in the folder that the server was
        given for it; returns how many tokens it holds. Errors as for `slots`."""
        return await self._slot(slot, "save", name, "n_saved")

    async def restore_slot(self, slot: int, name: str) -> int:
        """The reverse of `save_slot`, in a server with the same model."""
        return await self._slot(slot, "restore", name, "n_restored")

    async def _slot(self, slot: int, action: str, name: str, count: str) -> int:
        path = f"/slots/{slot}?action={action}"
        response = await self.client.post(path, json={"filename": name}, timeout=None)
        response.raise_for_status()
        try:
            return int(response.json()[count])
        except (ValueError, LookupError, TypeError) as error:
            raise EngineOutputError(
                f"an unreadable answer of {path}", line=response.text
            ) from error

    async def stop(self, grace: float = 10.0) -> int:
        """End it (SIGTERM, after `grace` s SIGKILL) and return its exit status."""
        try:
            await self.client.aclose()
        finally:
            code = await processes.stop(self.program, grace)
            await self._drain_output()
        return code

    def kill(self) -> None:
        """SIGKILL, for a `stop` under way that has to be over now."""
        processes.signal_group(self.program, signal.SIGKILL)

    async def _drain_output(self) -> None:
        self.exit.cancel()
        if self._reader is not None:
            # A grandchild may hold the pipe open for ever.
            await asyncio.wait([self._reader], timeout=1.0)
            self._reader.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_the_end(self.stop(grace=2.0))


async def _connect(endpoint: Endpoint) -> None:
    """See whether `endpoint` takes a connection: OSError or TimeoutError where it does not."""
    opened = (
        asyncio.open_connection(endpoint.host, endpoint.port)
        if endpoint.socket is None
        else asyncio.open_unix_connection(endpoint.socket)
    )
    async with asyncio.timeout(PROBE_SECONDS):
        _, writer = await opened
    writer.close()


async def refuses(endpoint: Endpoint) -> bool:
    """Whether nobody listens on `endpoint`; a full queue and any other doubt are no refusal."""
    try:
        await _connect(endpoint)
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except (OSError, TimeoutError):
        pass
    return False


async def _make_way(endpoint: Endpoint) -> None:
    """See that nobody answers on `endpoint`, and remove the socket that a killed server left.

    Another server there would be taken for ours until ours has found that it cannot listen;
    and the engine does not start where the file of a UNIX socket exists (build 11434).
    """
    try:
        await _connect(endpoint)
    except TimeoutError:
        pass
    except OSError:
        if endpoint.socket is not None and endpoint.socket.is_socket():
            endpoint.socket.unlink(missing_ok=True)
        return
    where = endpoint.socket or f"{endpoint.host}:{endpoint.port}"
    raise ServeError(
        f"another program already listens on {where}",
        hint="stop it, or let `listen` name another address",
    )


def http_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """A client whose paths are relative to `endpoint`; it follows no redirect and no proxy."""
    headers = {}
    if endpoint.api_key_file is not None:
        headers["Authorization"] = f"Bearer {first_key(endpoint)}"
    socket = str(endpoint.socket) if endpoint.socket is not None else None
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(verify=_no_tls(), trust_env=False, uds=socket),
        base_url="http://llama" if socket is not None else f"http://{host}:{endpoint.port}",
        headers=headers,
        trust_env=False,
    )


@functools.cache
def _no_tls() -> ssl.SSLContext:
    """One context, never used: each client would else load the certificates of all authorities."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


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
