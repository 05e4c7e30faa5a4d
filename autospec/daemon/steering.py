"""The live policy of one model: what is put in force, and what its rounds teach.

The child is launched once; from then on thresholds follow acceptance, load and depth without a
restart. Whether the child may be steered at all is found out per engine and launch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autospec.calibration.result import Calibration
from autospec.daemon.choose import Model, cost_of, survival_of
from autospec.daemon.engine_findings import Applier, applier
from autospec.daemon.setting import Basis
from autospec.engine.capabilities import DRAFT_SIMPLE
from autospec.engine.find import Engine
from autospec.engine.launch import Launch
from autospec.engine.live import build, trust
from autospec.engine.live.applier import LiveSession, obstacle
from autospec.engine.live.policy import LivePolicy, constant
from autospec.tuning.cost import RoundCost
from autospec.tuning.stopping import solve_table
from autospec.tuning.survival import SurvivalModel

SOLVE_AFTER = 32
"""Rounds after which the belief has moved enough to solve anew."""

_MOST_DEPTHS = 8
_MOST_LOADS = 8


def why_not(engine: Engine, launch: Launch) -> str | None:
    """Why children of this engine are not steered live; None when it may be tried."""
    if (reason := obstacle(engine, launch, (DRAFT_SIMPLE,))) is not None:
        return reason
    try:
        library = build.library()
    except build.LiveUnavailable as error:
        return str(error)
    return trust.recall(engine.identity, library).refusal()


def applier_of(engine: Engine, *, live: bool) -> Applier:
    """How settings reach `engine`; `live` where the configuration asks for the live policy."""
    refusal = why_not(engine, Launch("any")) if live else None
    return applier(engine.capabilities, live=live, refusal=refusal)


@dataclass
class Steering:
    """Steers one child; made anew for each. `belief` is what its rounds have taught so far."""

    model: Model
    n_max: int
    belief: SurvivalModel
    rounds: int = 0
    _unsolved: int = SOLVE_AFTER

    @classmethod
    def of(cls, model: Model, n_max: int) -> Steering:
        return cls(model, n_max, model.belief or survival_of(replace(model, learned=None)))

    def steer(self, session: LiveSession) -> None:
        """Keep the policy alive, learn from new rounds, put a better policy in force."""
        session.beat()
        if seen := [one.round for one in session.rounds()]:
            self.belief = self.belief.update(seen)
            self.rounds += len(seen)
            self._unsolved += len(seen)
        if self._unsolved >= SOLVE_AFTER:
            self._unsolved = 0
            session.put(self.policy())

    def policy(self) -> LivePolicy:
        """The best thresholds for every load and depth, under the present belief."""
        if (pinned := self.model.config.thresholds) is not None:
            return constant(pinned)
        costs = {
            (busy, depth): self._cost(busy, depth)
            for busy in range(1, min(self.model.config.slots, _MOST_LOADS) + 1)
            for depth in _depths(self.model.calibration)
        }
        solved = solve_table(list(costs.values()), self.belief)
        policies = dict(zip(costs, solved, strict=True))
        return LivePolicy.of(policies, self.belief, sole=True)

    def _cost(self, busy: int, depth: float) -> RoundCost:
        return cost_of(self.model, Basis(depth, busy)).truncated(self.n_max)


def _depths(calibration: Calibration | None) -> tuple[float, ...]:
    if calibration is None:
        return (0.0,)
    return tuple(map(float, calibration.surface.depths[:_MOST_DEPTHS]))
