"""Follows one model's traffic and says when another setting should be put in force."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

from autospec.config.schema import RetuneSection
from autospec.daemon.choose import Model, choose, cost_of, survival_of
from autospec.daemon.memory import Learned, Memory
from autospec.daemon.retune import Decision, Observed, decide, due
from autospec.daemon.setting import Setting
from autospec.daemon.steering import Steering
from autospec.daemon.watch import NOTHING, Watch
from autospec.engine.live.applier import LiveSession
from autospec.tuning.plan import Measured, Trial
from autospec.tuning.projection import scalar_rate
from autospec.tuning.stopping import solve

SLOWER = 0.05
"""How far (relative) under predicted plain decoding a measured rate is believed to be slower."""


class Tuner:
    """`reconsider` is called by the owner of the child; `decision` tells what it thought last.

    With a `memory`, what traffic taught is kept for the next start of the daemon.
    """

    def __init__(self, model: Model, settings: RetuneSection, memory: Memory | None = None) -> None:
        self.model = model
        self.decision: Decision | None = None
        self.why_not_live: str | None = None
        self._settings = settings
        self._memory = memory
        self._epoch: tuple[Watch | None, str] = (None, "")
        self._asked: float | None = None
        self._restarts: list[float] = []
        self.steering: Steering | None = None
        self._session: LiveSession | None = None

    def first(self) -> Setting:
        return choose(self.model)

    def refuse_live(self, reason: str) -> Setting:
        """The setting for a child that cannot be steered; `why_not_live` keeps the reason."""
        self.why_not_live = reason
        self.model = replace(self.model, live=False, belief=None)
        return choose(self.model)

    def steer(self, setting: Setting, session: LiveSession) -> None:
        """Learn from the rounds of the child under `session`, and steer it by what is known."""
        if self.steering is None or self._session is not session:
            self.steering = Steering.of(self.model, setting.speculation.n_max)
            self._session = session
        self.steering.steer(session)

    def reconsider(self, current: Setting, watch: Watch) -> Setting | None:
        """Another setting when it pays to restart for it right now, else None."""
        if self.model.calibration is None:
            return None
        now = time.monotonic()
        waiting = self.decision is not None and self.decision.action == "wait"
        observed = Observed(
            now=now,
            traffic_since=watch.began,
            rounds=watch.total.predicted - watch.total.accepted,
            idle=watch.idle,
            asked=None if waiting and watch.idle else self._asked,
            restarts=self._restarts,
        )
        if not due(observed, self._settings, speculating=current.speculation.on):
            return None
        self._asked = now
        self._learn(current, watch)
        rate = self._rate(current, watch)
        candidate = choose(self.model)
        self.decision = decide(current, candidate, rate, observed, self._settings)
        if self.decision.action != "restart":
            return None
        self._restarts.append(now)
        return candidate

    def _learn(self, current: Setting, watch: Watch) -> None:
        """Take in what this child's traffic shows, and keep it for the next start."""
        speculation, known, basis = current.speculation, self.model.learned, self.model.basis
        # Requests shorter than the time between readings are never caught at work.
        depth, busy = watch.depth or basis.depth, watch.busy or 1.0
        if current.live and self.steering is not None:
            # Counters cannot tell a threshold's cut from a miss; the rounds can.
            self.model = replace(self.model, belief=self.steering.belief)
            known = Learned(speculation.n_max, 0, 0.0, NOTHING, depth, busy)
        elif speculation.on:
            known = Learned(
                speculation.n_max,
                speculation.n_min,
                speculation.p_min,
                watch.total,
                depth,
                busy,
            )
        elif known is not None:
            known = replace(known, depth=depth, busy=busy)
        else:
            known = Learned(0, 0, 0.0, NOTHING, depth, busy)
        self.model = replace(self.model, learned=known)
        if self._memory is not None and not current.live and self.model.calibration is not None:
            if self._epoch[0] is not watch:
                self._epoch = watch, uuid.uuid4().hex
            self._memory.learn(self.model.calibration.key, self._epoch[1], known)

    def _rate(self, current: Setting, watch: Watch) -> float:
        """Tokens/s of the setting in force: predicted by what is known now, unless it measures
        slower than plain decoding. Then the measurement counts, and is kept as a trial."""
        cost = cost_of(self.model)
        speculation = current.speculation
        if not speculation.on:
            return cost.plain_rate
        n_max, n_min, p_min = speculation.n_max, speculation.n_min, speculation.p_min
        measured = (watch.mean_rate or 0.0) * self.model.basis.busy
        if 0.0 < measured < cost.plain_rate * (1.0 - SLOWER):
            tried = Measured(n_max, n_min, p_min, measured)
            self.model = replace(self.model, trial=Trial(cost.plain_rate, (tried,)))
            return measured
        if current.live:
            return solve(cost.truncated(n_max), survival_of(self.model)).rate
        return scalar_rate(cost, survival_of(self.model), n_max, n_min, p_min)
