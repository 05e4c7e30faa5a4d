"""The arms of a benchmark that stand still: plain, the engine's default, one triple, and the
rule of llama.cpp pull request 17034 played through the live policy.

The arms that autospec steers are in `tuned`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from autospec.calibration.prepare import Prepared
from autospec.calibration.result import Calibration
from autospec.config.schema import Config, ModelConfig
from autospec.engine.arguments import server_argv
from autospec.engine.capabilities import DRAFT_SIMPLE
from autospec.engine.find import Engine
from autospec.engine.launch import PLAIN, Endpoint, Speculation
from autospec.engine.live.applier import LiveSession, handshake, live_speculation
from autospec.engine.live.build import LiveUnavailable
from autospec.engine.live.policy import LivePolicy, constant
from autospec.engine.server import Server
from autospec.errors import ServeError
from autospec.tuning.replay import Triple

ARMS = ("plain", "default", "best_static", "pr17034", "scalar", "live")
_BEAT_SECONDS = 5.0
_USUAL_N_MAX = 3


@dataclass(frozen=True)
class Subject:
    """The pair of models that is benchmarked, with its configuration and what it costs."""

    config: Config
    model: ModelConfig
    prepared: Prepared
    calibration: Calibration


class Arm(Protocol):
    """One contender. Its server runs from `start` to `stop`."""

    name: str

    @property
    def pids(self) -> Sequence[int]:
        """The processes whose time on the processor is the measurement's own."""

    async def start(self, socket: Path) -> None:
        """Bring the server up. ServeError or EngineError when that cannot be done."""

    async def ready(self, cell: str) -> Server:
        """The server, set for `cell` and with nothing about to change."""

    def take(self) -> dict[str, Any]:
        """What is to be told of the time since the last call, for the journal."""

    async def stop(self) -> None:
        """End the server; does nothing where there is none."""


class FixedArm:
    """Settings by flags: `choose` names them for each cell."""

    def __init__(self, name: str, prepared: Prepared, choose: Callable[[str], Speculation]) -> None:
        self.name = name
        self._prepared = prepared
        self._choose = choose
        self._socket: Path | None = None
        self._server: Server | None = None
        self._running: Speculation | None = None

    @property
    def pids(self) -> Sequence[int]:
        return (self._server.pid,) if self._server else ()

    async def start(self, socket: Path) -> None:
        self._socket = socket

    async def ready(self, cell: str) -> Server:
        wanted = self._choose(cell)
        if self._server is None or wanted != self._running:
            await self.stop()
            assert self._socket is not None
            self._server = await serve(self._prepared, wanted, self._socket)
            self._running = wanted
        return self._server

    def take(self) -> dict[str, Any]:
        return {}

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await asyncio.shield(server.stop(grace=2.0))


class SteeredArm:
    """One policy of the live library, the same for all cells."""

    def __init__(self, name: str, prepared: Prepared, policy: LivePolicy) -> None:
        self.name = name
        self._prepared = prepared
        self._policy = policy
        self._server: Server | None = None
        self._session: LiveSession | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def pids(self) -> Sequence[int]:
        return (self._server.pid,) if self._server else ()

    async def start(self, socket: Path) -> None:
        try:
            session = await asyncio.to_thread(LiveSession.open)
        except LiveUnavailable as error:
            raise ServeError(f"no live policy: {error}") from error
        self._session = session
        n_max = self._policy.thresholds.shape[-1]
        wanted = live_speculation(Speculation((DRAFT_SIMPLE,), n_max))
        self._server = await serve(self._prepared, wanted, socket, session)
        reason = await handshake(session, self._server, n_max=n_max)
        if reason is not None:
            await self.stop()
            raise ServeError(f"no live policy: {reason}")
        session.put(self._policy)
        self._beating = asyncio.create_task(_beat(session))

    async def ready(self, cell: str) -> Server:
        assert self._server is not None
        return self._server

    def take(self) -> dict[str, Any]:
        return {}

    async def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        server, session = self._server, self._session
        self._server, self._session, self._beating = None, None, None
        try:
            if server is not None:
                await asyncio.shield(server.stop(grace=2.0))
        finally:
            if session is not None:
                session.close()


def default_speculation(engine: Engine) -> Speculation:
    """What the engine does with a draft model when nobody chooses: its own default numbers."""
    defaults = engine.capabilities.defaults
    return Speculation(
        (DRAFT_SIMPLE,),
        n_max=defaults.n_max or _USUAL_N_MAX,
        n_min=defaults.n_min or 0,
        p_min=defaults.p_min or 0.0,
    )


def of_triple(triple: Triple) -> Speculation:
    return Speculation((DRAFT_SIMPLE,), triple.n_max, triple.n_min, triple.p_min)


def average_cost_policy(calibration: Calibration) -> LivePolicy:
    """The rule of pull request 17034 as thresholds: a draft ends before the first token at which
    the product of the reported probabilities is under the average cost of a token in the batch
    that it makes, in units of plain decoding (see `tuning.oldrules.rule_17034`).
    """
    surface, longest = calibration.surface, calibration.max_draft
    single = surface.step(1).value
    relative = [surface.step(batch).value / batch / single for batch in range(2, longest + 2)]
    return constant(relative)


async def serve(
    prepared: Prepared,
    speculation: Speculation,
    socket: Path,
    session: LiveSession | None = None,
) -> Server:
    """A server that is ready, on `socket`."""
    endpoint = Endpoint(socket=socket)
    argv = server_argv(prepared.engine, prepared.launch, speculation, endpoint)
    env = session.environment(prepared.env) if session else prepared.env
    descriptors = session.descriptors if session else ()
    server = await Server.start(argv, env, endpoint, descriptors=descriptors)
    try:
        await server.ready(within=prepared.load_seconds)
    except BaseException:
        await asyncio.shield(server.stop(grace=1.0))
        raise
    return server


async def _beat(session: LiveSession) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            session.beat()
            await asyncio.sleep(_BEAT_SECONDS)


def plain_arm(prepared: Prepared) -> FixedArm:
    return FixedArm("plain", prepared, lambda _cell: PLAIN)


def default_arm(prepared: Prepared) -> FixedArm:
    wanted = default_speculation(prepared.engine)
    return FixedArm("default", prepared, lambda _cell: wanted)
