"""The arms that autospec steers: the daemon's own supervisor and tuner, listened to.

The one place of the benchmark that knows how the daemon looks after a child.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autospec.bench.arms import Subject
from autospec.daemon import steering
from autospec.daemon.choose import Model, cost_of
from autospec.daemon.events import Events
from autospec.daemon.lifecycle import Phase
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.setting import Basis, Setting
from autospec.daemon.supervisor import Supervisor
from autospec.daemon.terms import Charge
from autospec.daemon.tuner import Tuner
from autospec.engine.launch import Endpoint
from autospec.engine.live.applier import LiveSession
from autospec.engine.live.telemetry import LiveRound, RoundReader
from autospec.engine.server import Server
from autospec.errors import ServeError
from autospec.tuning.cost import RoundCost

_DEPTH_STEP = 32
"""Predictions are made for depths rounded to this many tokens."""


def why_not_live(subject: Subject) -> str | None:
    """Why the live arm cannot run; None where it may be tried."""
    return steering.why_not(subject.prepared.engine, subject.prepared.launch)


class TunedArm:
    """What `autospec serve` runs, with `live_policy` auto or off."""

    def __init__(self, name: str, subject: Subject, *, live: bool) -> None:
        self.name = name
        self._subject = subject
        self._live = live
        context, calibration = subject.prepared.context, subject.calibration
        able = subject.prepared.engine.capabilities
        model = Model(subject.model, context, calibration, able, live=live)
        self._tuner = Tuner(model, subject.config.retune)
        self._listener = _Listener(self._tuner)
        self._setting: Setting | None = None
        self._supervisor: Supervisor | None = None
        self._owner: asyncio.Task[None] | None = None

    @property
    def pids(self) -> Sequence[int]:
        server = self._supervisor.server if self._supervisor else None
        return (server.pid,) if server else ()

    @property
    def decided(self) -> bool:
        """Whether traffic has made it think about its setting."""
        return self._tuner.decision is not None

    async def start(self, socket: Path) -> None:
        prepared = self._subject.prepared
        endpoint = Endpoint(socket=socket)
        charge = Charge(
            prepared.engine, prepared.launch, endpoint, prepared.env, prepared.load_seconds
        )
        # What an earlier life of this arm has learned is still with its tuner.
        setting = self._setting or self._tuner.first()
        self._supervisor = Supervisor(
            charge, setting, Events(), self._tuner.reconsider, live=self._listener
        )
        self._owner = asyncio.create_task(self._supervisor.run())
        await self.ready("")
        if self._live and self._tuner.why_not_live is not None:
            reason = self._tuner.why_not_live
            await self.stop()
            raise ServeError(f"no live policy: {reason}")

    async def ready(self, cell: str) -> Server:
        """The server once it serves; a restart that is under way is waited for."""
        supervisor = self._supervisor
        assert supervisor is not None
        deadline = time.monotonic() + self._subject.prepared.load_seconds
        while supervisor.life.phase is not Phase.READY or supervisor.server is None:
            if supervisor.life.phase is Phase.FAILED or time.monotonic() > deadline:
                life = supervisor.life
                raise ServeError(f"the arm {self.name} is {life.phase}: {life.reason}")
            await asyncio.sleep(0.1)
        return supervisor.server

    def take(self) -> dict[str, Any]:
        """The setting in force, what it predicts, and the rounds since the last call."""
        supervisor = self._supervisor
        assert supervisor is not None
        setting, plan = supervisor.setting, supervisor.setting.plan
        speculation = setting.speculation
        return {
            "setting": [speculation.n_max, speculation.n_min, speculation.p_min],
            "restarts": supervisor.restarts,
            "predicted_rate": plan.rate if plan else None,
            "rounds": self._listener.take(),
        }

    async def explain(self) -> dict[str, Any]:
        """Why it runs as it does (see `autospec explain`)."""
        return await self._tuner.explain(self._supervisor.setting if self._supervisor else None)

    async def stop(self) -> None:
        supervisor, owner = self._supervisor, self._owner
        self._supervisor, self._owner = None, None
        if supervisor is not None and owner is not None:
            self._setting = supervisor.setting
            supervisor.stop(hurry=True)
            await asyncio.shield(owner)


class _Listener:
    """Stands between the supervisor and the tuner, and hears every round of the live library."""

    def __init__(self, tuner: Tuner) -> None:
        self._tuner = tuner
        self._session: LiveSession | None = None
        self._reader: RoundReader | None = None
        self._heard: list[dict[str, Any]] = []
        self._costs: dict[tuple[int, int], RoundCost] = {}
        self._costs_of: Knowledge | None = None

    def refuse_live(self, reason: str) -> Setting:
        return self._tuner.refuse_live(reason)

    def steer(self, setting: Setting, session: LiveSession) -> None:
        if session is not self._session:
            self._session, self._reader = session, session.reader()
            self._reader.take()  # the rounds of the handshake
        self._hear()
        self._tuner.steer(setting, session)

    def take(self) -> list[dict[str, Any]]:
        self._hear()
        heard, self._heard = self._heard, []
        return heard

    def _hear(self) -> None:
        if self._reader is None:
            return
        try:
            self._heard += [self._told(one) for one in self._reader.take()]
        except ValueError:  # The memory of a child that is gone.
            self._reader = None

    def _told(self, one: LiveRound) -> dict[str, Any]:
        drafted, paid = one.round.drafted, len(one.second)
        cost = self._cost(one)
        reachable = max(drafted, paid) <= cost.n_max
        predicted = cost.draft_ms[paid] + cost.verify_ms[drafted] if reachable else None
        return {
            "drafted": drafted,
            "accepted": one.round.accepted,
            "paid": paid,
            "busy": one.busy,
            "depth": one.depth,
            "draft_ms": one.round.draft_ms,
            "verify_ms": one.round.verify_ms,
            "predicted_ms": None if predicted is None else float(predicted),
        }

    def _cost(self, one: LiveRound) -> RoundCost:
        """What the tuner reckons with, at the depth and load of the round."""
        depth, model = one.depth // _DEPTH_STEP * _DEPTH_STEP, self._tuner.known
        if model.taught is not self._costs_of:
            self._costs_of, self._costs = model.taught, {}
        key = (depth, one.busy)
        if key not in self._costs:
            self._costs[key] = cost_of(model, Basis(depth, one.busy))
        return self._costs[key]
