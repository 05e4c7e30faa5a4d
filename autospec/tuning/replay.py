"""Replaying recorded rounds under other stopping rules.

A recorded round tells what would have happened under any rule that stops no later than it did:
had the draft been cut after k tokens, `min(accepted, k)` of them would have been accepted. So
every rule is replayed on the same rounds, with the same cost model, and scored by renewal-reward,
`tokens / time` over all rounds. What this leaves out: a rule that cuts early starts its next
round earlier in the text than the recording did.

All rules pay for draft steps as the engine does: a draft that stops before its limit has paid
the step that made it stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from autospec.tuning.evidence import EDGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from autospec.tuning.cost import RoundCost
    from autospec.tuning.observations import Round
    from autospec.tuning.stopping import Policy
    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]
    Bools = NDArray[np.bool_]

P_MIN_GRID = tuple(step / 20 for step in range(20))
N_MIN_TOP = 3


@dataclass(frozen=True, eq=False)
class Trace:
    """Recorded rounds as arrays: `p` (R, K) padded with 0, `drafted` (R,), `accepted` (R,)."""

    p: Floats
    drafted: Ints
    accepted: Ints

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Trace:
        """The rounds in their order; ValueError where none of them drafted anything."""
        longest = max((r.drafted for r in rounds), default=0)
        if longest == 0:
            raise ValueError("no round drafted anything: there is nothing to compare")
        p = np.zeros((len(rounds), longest))
        for row, one in zip(p, rounds, strict=True):
            row[: one.drafted] = one.p
        drafted = np.array([one.drafted for one in rounds], dtype=np.intp)
        return cls(p, drafted, np.array([one.accepted for one in rounds], dtype=np.intp))

    def __len__(self) -> int:
        return len(self.p)

    @property
    def n_max(self) -> int:
        return int(self.p.shape[1])

    def pick(self, rows: Ints) -> Trace:
        """The rounds at `rows`, in that order."""
        return Trace(self.p[rows], self.drafted[rows], self.accepted[rows])


class Cut(NamedTuple):
    """What a rule does with each round: tokens sent to the target, and draft steps paid; (R,)."""

    kept: Ints
    paid: Ints


class Triple(NamedTuple):
    """The engine's scalar setting."""

    n_max: int
    n_min: int
    p_min: float


def tokens(trace: Trace, cut: Cut) -> Ints:
    """Tokens that each round yields: those accepted of the kept ones, and the target's own."""
    return 1 + np.minimum(trace.accepted, cut.kept)


def times(cost: RoundCost, trace: Trace, cut: Cut) -> Floats:
    """Time of each round in ms."""
    partial = trace.accepted < cut.kept
    replay = np.where(partial, cost.replay_ms[np.minimum(trace.accepted, cost.n_max)], 0.0)
    round_ms: Floats = cost.draft_ms[cut.paid] + cost.verify_ms[cut.kept] + replay
    return round_ms


def rate(cost: RoundCost, trace: Trace, cut: Cut) -> float:
    """Tokens per second over all rounds."""
    return float(1000 * tokens(trace, cut).sum() / times(cost, trace, cut).sum())


def cut_where(trace: Trace, stop: Bools, n_max: int) -> Cut:
    """The rule that ends a draft before its first token i with `stop[r, i]`, or at `n_max`."""
    limit = np.minimum(trace.drafted, n_max)
    stopping = np.column_stack([stop[:, :n_max], np.ones(len(trace), dtype=np.bool_)])
    kept = np.minimum(np.argmax(stopping, axis=1), limit)
    return Cut(kept, np.minimum(kept + 1, limit))


def cut_scalar(trace: Trace, triple: Triple) -> Cut:
    """The engine's own rule: stop under `p_min`, throw drafts shorter than `n_min` away."""
    return thrown_away(cut_where(trace, trace.p < triple.p_min, triple.n_max), triple.n_min)


def thrown_away(cut: Cut, n_min: int) -> Cut:
    """`cut` where drafts shorter than `n_min` are not sent to the target."""
    return Cut(np.where(cut.kept < n_min, 0, cut.kept), cut.paid)


def cut_average_cost(trace: Trace, relative_cost: ArrayLike) -> Cut:
    """The rule of pull request 17034: stop where the product of the reported probabilities
    falls under the average cost of a token, `relative_cost[i]` in a batch of i+1."""
    threshold = np.asarray(relative_cost, dtype=np.float64)[1 : trace.n_max + 1]
    if len(threshold) < trace.n_max:
        raise ValueError(f"costs of batches up to {trace.n_max + 1} are needed")
    return cut_where(trace, np.cumprod(trace.p, axis=1) < threshold, trace.n_max)


def cut_vector(trace: Trace, survival: SurvivalModel, policy: Policy) -> Cut:
    """Our rule: stop where the calibrated survival falls under the threshold of its position.

    It drafts up to the policy's limit; a policy that never drafts pays no step.
    """
    if not policy.drafts:
        none = np.zeros(len(trace), dtype=np.intp)
        return Cut(none, none)
    limit = policy.n_max if policy.limit is None else policy.limit
    n_max = min(limit, trace.n_max)
    survived = np.cumprod(calibrated(survival, trace.p[:, :n_max]), axis=1)
    return cut_where(trace, survived < np.array(policy.thresholds[:n_max]), n_max)


def calibrated(survival: SurvivalModel, p: Floats) -> Floats:
    """Acceptance that `survival` believes in for reported `p` (R, k) at positions 1…k."""
    levels = np.clip(np.searchsorted(EDGES, p, side="right") - 1, 0, len(survival.p) - 1)
    q: Floats = survival.q[np.arange(p.shape[1]), levels]
    return q


def cut_oracle(cost: RoundCost, trace: Trace) -> Cut:
    """The best that anyone could do who knew what will be accepted, and pays for no step more.

    Such an oracle maximises `tokens − λ·time` round by round; λ is its own rate (Dinkelbach).
    A token too many is kept where the larger batch is cheaper.
    """
    k = np.arange(trace.n_max + 1)
    accepted, drafted = trace.accepted[:, np.newaxis], trace.drafted[:, np.newaxis]
    gain = np.where(k <= drafted, 1.0 + np.minimum(k, accepted), -np.inf)
    time = cost.draft_ms[: len(k)] + cost.verify_ms[: len(k)]
    time = time + np.where(k > accepted, cost.replay_ms[np.minimum(accepted, cost.n_max)], 0.0)
    cut = Cut(trace.accepted, trace.accepted)
    best = 0.0
    while (found := rate(cost, trace, cut)) > best * (1 + 1e-12):
        best = found
        kept = np.argmax(gain - best / 1000 * time, axis=1)
        cut = Cut(kept, kept)
    return cut


def best_fixed(cost: RoundCost, trace: Trace) -> tuple[int, float]:
    """The fixed draft length that does best on `trace`, and its rate; the shorter of equals."""
    rates = [
        rate(cost, trace, cut_scalar(trace, Triple(k, 0, 0.0))) for k in range(1, trace.n_max + 1)
    ]
    best = int(np.argmax(rates))
    return best + 1, rates[best]


def every_triple(n_max: int) -> list[Triple]:
    """All settings of n_max to the given one, n_min to 3 and p_min by 0.05."""
    return [
        Triple(length, n_min, p_min)
        for length in range(1, n_max + 1)
        for p_min in P_MIN_GRID
        for n_min in range(min(length, N_MIN_TOP) + 1)
    ]


def best_scalar(cost: RoundCost, trace: Trace) -> tuple[Triple, float]:
    """The triple that does best on `trace`, and its rate."""
    triples = every_triple(trace.n_max)
    rates = [rate(cost, trace, cut_scalar(trace, triple)) for triple in triples]
    best = int(np.argmax(rates))
    return triples[best], rates[best]
