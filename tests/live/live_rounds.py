"""Policies to try on the real engine, and whether a round follows one.

The target is the small original model and the draft the same with a block dropped, so that drafts
are often wrong and a run takes seconds.
"""

from __future__ import annotations

import numpy as np

from autospec.engine.launch import Speculation
from autospec.engine.live.policy import LivePolicy
from autospec.engine.live.telemetry import LiveRound

K = 8
DRAFT = Speculation(("draft-simple",), n_max=K, n_min=0, p_min=0.0)

WARM_UP = 12
"""Tokens of an answer in which the library has seen enough to trust the engine."""


def random_policy(random: np.random.Generator) -> LivePolicy:
    """Anything from eager to shy, differing by depth and position, with a bent map."""
    eagerness = random.uniform(0.0, 0.7)
    return LivePolicy(
        thresholds=random.uniform(0.0, eagerness, (4, 2, K)),
        level=np.array([0.05, 0.3, 0.6, 0.9]),
        acceptance=np.sort(random.uniform(0.1, 1.0, (K, 4))),
        depth_from=(0.0, 20.0),
    )


def close_call(policy: LivePolicy, seen: LiveRound) -> bool:
    """Whether float and double may disagree about the last token that was looked at."""
    reported = _reported(seen)
    row = policy.thresholds[min(seen.busy, len(policy.thresholds)) - 1]
    bucket = int(np.searchsorted(policy.depth_from, seen.depth, side="right")) - 1
    q = [np.interp(p, policy.level, policy.acceptance[i]) for i, p in enumerate(reported)]
    return bool(np.any(np.abs(np.cumprod(q) - row[bucket, : len(q)]) < 1e-5))


def _reported(seen: LiveRound) -> tuple[float, ...]:
    return seen.round.p if seen.round.cut_p is None else (*seen.round.p, seen.round.cut_p)


def follows(policy: LivePolicy, seen: LiveRound) -> bool:
    """Whether a round ended where `policy` demands, given what the draft reported."""
    demanded = policy.kept(_reported(seen), busy=seen.busy, depth=seen.depth)
    return demanded == seen.round.drafted or close_call(policy, seen)
