"""What the library is told: thresholds by load, depth and position, and what a reported p means."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autospec.engine.live.memory import BUSY, DEPTHS, LEVELS, POLICY, POSITIONS, PolicyFlag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from autospec.tuning.stopping import Policy
    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LivePolicy:
    """Token i+1 of a draft is kept iff the survival with it is at least its threshold.

    - `thresholds` (busy, depths, positions): row b−1 for b busy slots, the last row for more; 0
      is "always", inf "never"; positions beyond the table are never cut;
    - `depth_from` (depths,): where each bucket of context depth begins, the first at 0;
    - `level` (levels,) rising, `acceptance` (positions, levels): the chance that a token is
      accepted for which the draft reports `level`; linear between, constant beyond.

    `at_least_plain`: measured to be no slower than plain decoding, so it may outlive the daemon.
    `sole`: one draft model alone drafts here, so what the thresholds never keep is not drafted in
    the first place: a round is given its limit beforehand, which saves the draft step before a
    cut (`limit_is_free` in the solver), and the first step where nothing is kept. N-gram types
    beside it would be limited as well.
    """

    thresholds: Floats
    level: Floats
    acceptance: Floats
    depth_from: tuple[float, ...] = (0.0,)
    at_least_plain: bool = False
    sole: bool = False

    def __post_init__(self) -> None:
        busy, depths, positions = self.thresholds.shape
        if not (1 <= busy <= BUSY and 1 <= depths <= DEPTHS and positions <= POSITIONS):
            raise ValueError(f"no room for thresholds of shape {self.thresholds.shape}")
        if len(self.depth_from) != depths or self.depth_from[0] != 0.0:
            raise ValueError("one beginning for each bucket of depth, the first at 0")
        if not 1 <= len(self.level) <= LEVELS or self.acceptance.shape != (
            positions,
            len(self.level),
        ):
            raise ValueError("acceptance is a table, positions by levels")
        if np.any(np.diff(self.level) <= 0) or np.any(np.diff(self.depth_from) <= 0):
            raise ValueError("levels and depths rise")
        if not np.all((self.acceptance >= 0) & (self.acceptance <= 1)):
            raise ValueError("acceptance lies within [0, 1]")
        if not np.all(self.thresholds >= 0):
            raise ValueError("thresholds are 0 or more")

    @classmethod
    def of(
        cls,
        policies: Mapping[tuple[int, float], Policy],
        survival: SurvivalModel,
        *,
        at_least_plain: bool = False,
        sole: bool = False,
    ) -> LivePolicy:
        """From solved policies by (busy slots, depth in tokens) under one belief.

        Every combination of a load and a depth must be there. Nothing is kept beyond a policy's
        n_max; beyond the largest of them nothing is cut, so that one should be the child's.
        The buckets of depth part halfway between the depths; loads run from 1, and one without a
        policy takes the next lower one's.
        """
        loads = sorted({busy for busy, _ in policies})
        depths = sorted({depth for _, depth in policies})
        rows = [max((b for b in loads if b <= busy), default=loads[0]) for busy in _upto(loads[-1])]
        positions = max(policy.n_max for policy in policies.values())
        table = [
            [_padded(policies[busy, depth].thresholds, positions) for depth in depths]
            for busy in rows
        ]
        return cls(
            thresholds=np.array(table, dtype=np.float64),
            level=survival.p,
            acceptance=survival.q[:positions],
            depth_from=(0.0, *((a + b) / 2 for a, b in itertools.pairwise(depths))),
            at_least_plain=at_least_plain,
            sole=sole,
        )

    def record(self, number: int, *, in_force: bool = True) -> NDArray[np.void]:
        """One POLICY record for `PolicyFile.write`; rounds tell `number` back.

        Without `in_force` the library only reports.
        """
        busy, depths, positions = self.thresholds.shape
        flags = PolicyFlag(0)
        for wanted, flag in (
            (in_force, PolicyFlag.IN_FORCE),
            (self.at_least_plain, PolicyFlag.AT_LEAST_PLAIN),
            (self.sole, PolicyFlag.SOLE),
        ):
            flags |= flag if wanted else PolicyFlag(0)
        record = np.zeros(1, dtype=POLICY)
        record["flags"], record["number"] = int(flags), number
        record["positions"], record["levels"] = positions, len(self.level)
        record["busy"], record["depths"] = busy, depths
        record["depth_from"][0, :depths] = self.depth_from
        record["level"][0, : len(self.level)] = self.level
        record["acceptance"][0, :positions, : len(self.level)] = self.acceptance
        record["threshold"][0, :busy, :depths, :positions] = self.thresholds
        return record

    def kept(self, p: Sequence[float], *, busy: int, depth: float) -> int:
        """How many tokens of a draft that reports `p` the policy keeps."""
        row = self.thresholds[min(busy, len(self.thresholds)) - 1]
        bucket = int(np.searchsorted(self.depth_from, depth, side="right")) - 1
        survival = 1.0
        for i, reported in enumerate(p[: row.shape[1]]):
            survival *= float(np.interp(reported, self.level, self.acceptance[i]))
            if survival < row[bucket, i]:
                return i
        return len(p)


def _padded(thresholds: tuple[float, ...], positions: int) -> tuple[float, ...]:
    return thresholds + (math.inf,) * (positions - len(thresholds))


def _upto(most: int) -> range:
    return range(1, most + 1)


def at_most(tokens: int, n_max: int) -> LivePolicy:
    """Draft exactly `tokens` tokens wherever the engine would draft `n_max`."""
    thresholds = np.where(np.arange(n_max) < tokens, 0.0, math.inf)
    return constant(thresholds)


def constant(thresholds: ArrayLike) -> LivePolicy:
    """One vector for every load and depth, with p taken as it is reported."""
    vector = np.asarray(thresholds, dtype=np.float64)
    return LivePolicy(
        thresholds=vector.reshape(1, 1, -1),
        level=np.array([0.0, 1.0]),
        acceptance=np.tile([0.0, 1.0], (vector.size, 1)),
    )
