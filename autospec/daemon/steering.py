"""The live policy of one child: rounds are read, thresholds put in force.

The child is launched once, with room for the longest draft that is considered; from then on
thresholds follow acceptance, load and depth without a restart. Whether a child may be steered at
all is found out per engine and launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autospec.daemon.retuning import exploring
from autospec.daemon.retuning.appliers import Applier, applier
from autospec.daemon.retuning.exploring import Ahead, Budget
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.retuning.steps import Step, Steps
from autospec.daemon.setting import Basis
from autospec.engine.capabilities import DRAFT_SIMPLE
from autospec.engine.find import Engine
from autospec.engine.launch import Launch
from autospec.engine.live import build, trust
from autospec.engine.live.applier import LiveSession, obstacle
from autospec.engine.live.policy import LivePolicy, at_most, constant
from autospec.tuning.shared import policy_table
from autospec.tuning.stopping import Policy

Floats = NDArray[np.float64]

SOLVE_AFTER = 32
"""Rounds after which the belief has moved enough to solve anew."""

MOVED = 0.03
"""Thresholds are solved anew where survival (absolute) or costs (relative) moved by this much."""

_DEPTHS = (0.0, 1 / 32, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Depths that thresholds are solved for, as shares of a slot's context."""

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


@dataclass(frozen=True, eq=False)
class Solved:
    """Thresholds, the rules by load and depth that they are made from, what was known then
    (survival by position, cost factors), and where a draft is let go further than these ask for.

    `hope` is how long drafts might well have to be to be the best where the last round was.
    """

    table: LivePolicy
    policies: Mapping[tuple[int, float], Policy]
    known: Floats | None = field(default=None, repr=False)
    hope: int = 0
    ahead: Ahead | None = None

    def at(self, busy: int, depth: float) -> Policy | None:
        """The rule nearest to a load and depth; None where the thresholds are given ones."""
        if not self.policies:
            return None
        loads = sorted({load for load, _ in self.policies})
        load = max((one for one in loads if one <= busy), default=loads[0])
        depths = [key for key in self.policies if key[0] == load]
        return self.policies[min(depths, key=lambda key: abs(key[1] - depth))]


@dataclass(frozen=True)
class Room:
    """What thresholds are solved for: so many slots, each with a context of so many tokens, in a
    child that drafts up to `n_max`. `pinned` thresholds are the user's."""

    slots: int
    context: int
    n_max: int
    pinned: tuple[float, ...] | None = None

    def solve(
        self,
        knowledge: Knowledge,
        before: Solved | None = None,
        *,
        near: Basis | None = None,
        zero: bool = False,
    ) -> Solved:
        """The best thresholds for every load and depth as far as is known now.

        The search goes on from those of `before`; `near` is where the last round was. With `zero`
        nothing is drafted.
        """
        if zero:
            return Solved(at_most(0, self.n_max), {})
        if self.pinned is not None:
            return Solved(constant(self.pinned), {})
        survival = knowledge.survival
        bases = [
            Basis(float(depth), busy)
            for busy in range(1, min(self.slots, _MOST_LOADS) + 1)
            for depth in sorted({round(share * self.context) for share in _DEPTHS})
        ]
        hope = 0
        if near is not None:
            hope = exploring.hope(knowledge.costs.at(near).truncated(self.n_max), survival)
        known = np.concatenate([survival.survival(), knowledge.costs.factors(bases)])
        if before is not None and before.policies and _near(known, before.known):
            return replace(before, hope=hope)
        costs = {
            (basis.busy, basis.depth): knowledge.costs.at(basis).truncated(self.n_max)
            for basis in bases
        }
        start = dict(before.policies) if before is not None and before.policies else None
        policies = policy_table(costs, survival, limit_is_free=True, start=start)
        return Solved(LivePolicy.of(policies, survival, sole=True), policies, known, hope)


def _near(known: Floats, before: Floats | None) -> bool:
    """Whether too little has moved to change thresholds by anything that counts."""
    return before is not None and bool(np.max(np.abs(known - before)) < MOVED)


@dataclass
class Steering:
    """Steers one child; made anew for each. `rounds` were read so far."""

    room: Room
    budget: Budget
    rounds: int = 0
    solved: Solved | None = None
    _steps: Steps = field(default_factory=Steps)
    _next: tuple[int, float, float] | None = None
    _unsolved: int = SOLVE_AFTER

    def read(self, session: LiveSession) -> list[Step]:
        """Keep the policy alive and take the steps that are complete."""
        session.beat()
        seen = session.rounds()
        solved = self.solved
        ahead = solved.ahead if solved is not None else None
        explored = sum(ahead is not None and ahead.holds(one.depth) for one in seen)
        self.budget = self.budget.after(len(seen), explored)
        if explored and solved is not None:
            # Other slots, and other requests, would come through the same depth.
            self.solved = replace(solved, ahead=None)
            session.put(solved.table)
            if self.budget.explored < exploring.FIRST:
                self._unsolved = SOLVE_AFTER
        self.rounds += len(seen)
        self._unsolved += len(seen)
        if seen:
            last = seen[-1]
            made = sum(one.round.accepted + 1 for one in seen) / len(seen)
            self._next = (last.busy, last.depth + last.round.accepted + 1.0, made)
        return self._steps.take(seen)

    @property
    def due(self) -> bool:
        """Whether enough rounds came to solve anew."""
        return self._unsolved >= SOLVE_AFTER

    def put(self, session: LiveSession, solved: Solved, knowledge: Knowledge) -> None:
        """Put thresholds in force, with a place to explore in where the budget allows it."""
        self._unsolved = 0
        ahead = self._explore(solved, knowledge)
        self.solved = replace(solved, ahead=ahead)
        session.put(
            solved.table if ahead is None else exploring.with_exploring(solved.table, ahead)
        )

    @property
    def place(self) -> Basis | None:
        """Where the last round was; None before the first."""
        return None if self._next is None else Basis(self._next[1], self._next[0])

    @property
    def present(self) -> tuple[Policy, str] | None:
        """The rule in force where the last round was, and where that is, in words."""
        if self.solved is None or self._next is None:
            return None
        busy, depth, _ = self._next
        policy = self.solved.at(busy, depth)
        slots = "1 busy slot" if busy == 1 else f"{busy} busy slots"
        return None if policy is None else (policy, f"with {slots} at depth {depth:.0f}")

    def _explore(self, solved: Solved, knowledge: Knowledge) -> Ahead | None:
        """Where the next draft is let go further than the policy asks for, if the budget allows."""
        if self._next is None:
            return None
        busy, depth, made = self._next
        policy = solved.at(busy, depth)
        if policy is None:
            return None
        kept = exploring.reach(policy)
        hopeful = solved.hope > kept
        if not self.budget.allows(drafting=policy.drafts, hopeful=hopeful):
            return None
        strength = knowledge.survival.strength.tolist()
        reach = solved.hope if hopeful else exploring.length(kept, strength, self.room.n_max)
        return Ahead(depth + exploring.AHEAD * made, made, reach) if reach > 0 else None
