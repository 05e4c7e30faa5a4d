"""Single rounds that draft longer than the policy asks for. Pure.

What the thresholds in force never draft is never learned: whether longer drafts would be accepted
by now, and what they cost. So now and then one round is let go further. A policy is a table by
depth, and a slot's depth grows with every token: thresholds that keep every token up to `length`
are put into a bucket a few tokens wide just ahead of one slot, which passes through it in one or
two rounds. The count of such rounds is kept within a share of all, but for the first few: where
costs and acceptance, better by as much as is not known of them, would make longer drafts the best
ones, waiting for the share would leave that open for hundreds of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autospec.engine.live.memory import DEPTHS
from autospec.engine.live.policy import LivePolicy
from autospec.tuning.cost import RoundCost
from autospec.tuning.shared import best_policy
from autospec.tuning.stopping import Policy
from autospec.tuning.survival import SurvivalModel

WHERE_NOTHING_IS_DRAFTED = 1 / 16
"""Share of rounds that explore where the policy drafts nothing: no other round would tell when
drafting pays again."""

AHEAD = 2.0
"""How far ahead of a slot a bucket begins, in rounds: some pass before the policy is read."""

FIRST = 8
"""So many rounds of a child may find out beforehand whether longer drafts are the better ones."""

KNOWN = 24.0
"""Drafted tokens at a position (of late) that make it known well enough."""


@dataclass(frozen=True)
class Ahead:
    """A place in the context where drafts of `length` tokens are let through."""

    start: float
    width: float
    length: int

    def holds(self, depth: float) -> bool:
        return self.start <= depth < self.start + self.width


@dataclass(frozen=True)
class Budget:
    """Rounds so far, and those of them that explored."""

    share: float
    rounds: int = 0
    explored: int = 0

    def after(self, rounds: int, explored: int) -> Budget:
        return replace(self, rounds=self.rounds + rounds, explored=self.explored + explored)

    def allows(self, *, drafting: bool, hopeful: bool = False) -> bool:
        """Whether one more round may explore: more of them where nothing is drafted, and
        beforehand where what is not known may make longer drafts the best."""
        share = self.share
        if hopeful and share > 0.0 and self.explored < FIRST:
            return True
        if share > 0.0 and not drafting:
            share = max(share, WHERE_NOTHING_IS_DRAFTED)
        return self.explored + 1 <= share * self.rounds


def hope(cost: RoundCost, survival: SurvivalModel) -> int:
    """How far drafts would go if costs and acceptance were better by a standard deviation."""
    policy = best_policy(cost.shifted(-1.0), survival.shifted(1.0))
    return reach(policy)


def reach(policy: Policy) -> int:
    """The longest draft of a policy."""
    return sum(threshold <= 1.0 for threshold in policy.thresholds) if policy.drafts else 0


def length(kept: int, strength: Sequence[float], longest: int) -> int:
    """How far the next exploring draft goes: one position beyond the first that is not known well,
    from `kept` on, the longest draft of the policy. All of `longest` where all are known."""
    for position in range(kept, longest):
        if strength[position] < KNOWN:
            return min(position + 2, longest)
    return longest


def with_exploring(policy: LivePolicy, ahead: Ahead) -> LivePolicy:
    """`policy` with one bucket of depth more, in which drafts reach `ahead.length`.

    Unchanged where the table has no room for it.
    """
    begins = policy.depth_from
    end = ahead.start + ahead.width
    if len(begins) + 2 > DEPTHS or ahead.start <= 0.0:
        return policy
    inside = [begin for begin in begins if ahead.start < begin < end]
    if inside or ahead.start in begins or end in begins:
        return policy
    at = sum(begin < ahead.start for begin in begins)
    positions = policy.thresholds.shape[2]
    row = np.where(np.arange(positions) < ahead.length, 0.0, math.inf)
    opened = np.broadcast_to(row, (policy.thresholds.shape[0], 1, positions))
    around = policy.thresholds[:, at - 1 : at]
    table = np.concatenate(
        [policy.thresholds[:, :at], opened, around, policy.thresholds[:, at:]], axis=1
    )
    depths = (*begins[:at], ahead.start, end, *begins[at:])
    return replace(policy, thresholds=table, depth_from=depths)
