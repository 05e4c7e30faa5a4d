"""What is believed about acceptance: by position, and by what the draft reports.

Notation: `a_i` is the chance that token i is accepted, given that tokens 1…i−1 were; survival is
`S_i = a_1·…·a_i`. Before token i is decided on, the draft reports p; what counts is the
calibrated acceptance `q = g(p, i)`. A model is therefore one discrete distribution a position:
with chance `weight[i, m]` the draft reports `p[m]`, and then the token is accepted with chance
`q[i, m]`, so that `a_i = Σ_m weight[i, m]·q[i, m]`.

**Prior.** Before any observation `weight` is the same at every position, leaning to the ends as
softmax probabilities do, and `q = σ(0.7·logit p)`: an informative but overconfident draft, with
a_i ≈ 0.64. It is worth `PRIOR_ROUNDS` rounds where rounds or counters are seen.

**Confidence.** Neighbouring rounds share their text, so evidence counts `1/DEPENDENCE` when
intervals are drawn; intervals are Beta quantiles (90 %) around the mean of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from autospec.tuning.calibration_map import EDGE, logit, sigmoid
from autospec.tuning.chain import Chain
from autospec.tuning.evidence import (
    BINS,
    PRIOR_P,
    PRIOR_Q,
    PRIOR_ROUNDS,
    CounterEvidence,
    RoundEvidence,
)
from autospec.tuning.observations import Counters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from autospec.tuning.observations import Round

    Floats = NDArray[np.float64]

DEPENDENCE = 2.0
MEMORY = 400.0
"""Default memory of `update`: evidence loses weight by e over this many rounds."""


@dataclass(frozen=True, eq=False)
class SurvivalModel:
    """A belief about acceptance for drafts of up to K tokens, on M levels of p.

    - `p` (M,): what the draft reports, ascending; a scalar `p_min` cuts what lies below it;
    - `q` (K, M): calibrated acceptance; `weight` (K, M): how often, each row sums to 1;
    - `strength` (K,): how many tokens at that position the belief is worth;
    - `observed`: rounds seen, less what was forgotten; 0 means prior only;
    - `evidence`: what `update` builds on; None for models given by hand.
    """

    p: Floats
    q: Floats
    weight: Floats
    strength: Floats
    observed: float = 0.0
    evidence: RoundEvidence | CounterEvidence | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.q.ndim != 2 or self.q.shape != self.weight.shape:
            raise ValueError("q and weight are tables of one shape, positions by levels")
        if self.p.shape != self.q.shape[1:] or self.strength.shape != self.q.shape[:1]:
            raise ValueError("p has one entry a level, strength one a position")
        for name, array in (("p", self.p), ("q", self.q), ("weight", self.weight)):
            if not np.all((array >= 0) & (array <= 1)):
                raise ValueError(f"{name} lies within [0, 1]")
        if not np.allclose(self.weight.sum(axis=1), 1.0):
            raise ValueError("the weights of a position sum to 1")

    @classmethod
    def prior(cls, n_max: int) -> SurvivalModel:
        """What is believed before any observation."""
        return cls.from_rounds([], n_max)

    @classmethod
    def constant(cls, acceptance: ArrayLike) -> SurvivalModel:
        """Acceptance `a_i` known, and reported probabilities that tell nothing (p = 1)."""
        rates = np.atleast_1d(np.asarray(acceptance, dtype=np.float64))
        shape = (len(rates), 1)
        strength = np.full(len(rates), 1e6)
        return cls(np.ones(1), rates.reshape(shape), np.ones(shape), strength)

    @classmethod
    def from_rounds(
        cls, rounds: Sequence[Round], n_max: int, prior: SurvivalModel | None = None
    ) -> SurvivalModel:
        """Learn from full rounds, the oldest first; `prior` is a model to start from.

        Only positions up to and including the first mismatch tell about acceptance.
        """
        if prior is None:
            return _from_round_evidence(RoundEvidence.empty(n_max).add(rounds, memory=np.inf))
        if prior.n_max != n_max:
            raise ValueError(f"a belief about {prior.n_max} positions is no prior for {n_max}")
        return prior.update(rounds, memory=np.inf)

    @classmethod
    def from_counters(
        cls,
        counters: Counters,
        n_max: int,
        p_min_used: float = 0.0,
        prior: SurvivalModel | None = None,
    ) -> SurvivalModel:
        """Learn from the engine's counters, taken under a setting with `p_min_used`.

        What they identify, and how short drafts are told from misses: see `CounterEvidence`.
        """
        if prior is not None:
            known = prior.evidence
            if not isinstance(known, CounterEvidence) or known.p_min != p_min_used:
                raise ValueError("the prior comes from something else than counters under p_min")
            return prior.update(counters, memory=np.inf)
        evidence = CounterEvidence.empty(n_max, p_min_used).add(counters, memory=np.inf)
        return _from_counter_evidence(evidence)

    def update(self, seen: Sequence[Round] | Counters, *, memory: float = MEMORY) -> SurvivalModel:
        """The belief after `seen`; earlier evidence fades by e over `memory` rounds.

        A model takes what it was made from, rounds or counters under one setting. Raises
        TypeError for anything else.
        """
        if isinstance(self.evidence, CounterEvidence) and isinstance(seen, Counters):
            return _from_counter_evidence(self.evidence.add(seen, memory=memory))
        if isinstance(self.evidence, RoundEvidence) and not isinstance(seen, Counters):
            return _from_round_evidence(self.evidence.add(seen, memory=memory))
        raise TypeError("this belief was not made from such observations")

    @property
    def n_max(self) -> int:
        return len(self.strength)

    @cached_property
    def means(self) -> Floats:
        """`a_i` (K,): acceptance by position given that all earlier tokens were accepted."""
        return np.asarray(np.sum(self.weight * self.q, axis=1), dtype=np.float64)

    @cached_property
    def chain(self) -> Chain:
        """The cumulative survivals that drafts pass through, for all K positions."""
        return Chain.of(self.q, self.weight)

    def survival(self) -> Floats:
        """`S_i` (K,)."""
        return np.asarray(np.cumprod(self.means), dtype=np.float64)

    def acceptance(self, i: int) -> tuple[float, float, float]:
        """Mean, low and high (90 %) of `a_i`; positions count from 1."""
        low, high = self._interval(i - 1)
        return float(self.means[i - 1]), low, high

    def shifted(self, sds: float) -> SurvivalModel:
        """All acceptances moved together by `sds` posterior standard deviations (log odds).

        Positions share the text, so their errors are taken to be one error: what all positions
        know together, weighted by how often each is reached.
        """
        reach = np.concatenate([[1.0], self.survival()[:-1]])
        share = reach / reach.sum()
        mean = float(np.clip(share @ self.means, EDGE, 1.0 - EDGE))
        worth = float(self.strength[0] * reach.sum()) / DEPENDENCE
        sd = 1.0 / np.sqrt(worth * mean * (1.0 - mean) + 1.0)
        moved = sigmoid(logit(self.q) + sds * sd)
        return replace(self, q=np.where(np.isin(self.q, (0.0, 1.0)), self.q, moved), evidence=None)

    def _interval(self, index: int) -> tuple[float, float]:
        # 27 MB, which the daemon does without.
        from scipy.special import betaincinv  # noqa: PLC0415

        mean = float(np.clip(self.means[index], EDGE, 1.0 - EDGE))
        worth = self.strength[index] / DEPENDENCE + 1.0
        low, high = betaincinv(mean * worth, (1.0 - mean) * worth, [0.05, 0.95])
        return min(float(low), float(self.means[index])), max(float(high), float(self.means[index]))


def _from_round_evidence(evidence: RoundEvidence) -> SurvivalModel:
    """Weights and calibrated acceptances from tables of counts.

    The distribution of p at a position leans on that over all positions (worth PRIOR_ROUNDS),
    which itself leans on the prior.
    """
    shown = evidence.trials + evidence.cut
    pooled = shown.sum(axis=0) + PRIOR_ROUNDS * PRIOR_P
    pooled = pooled / pooled.sum()
    weight = shown + PRIOR_ROUNDS * pooled
    weight = weight / weight.sum(axis=1, keepdims=True)
    return SurvivalModel(
        p=BINS,
        q=evidence.calibrated(),
        weight=weight,
        strength=PRIOR_ROUNDS + evidence.trials.sum(axis=1),
        observed=evidence.rounds,
        evidence=evidence,
    )


def _from_counter_evidence(evidence: CounterEvidence) -> SurvivalModel:
    """Two levels: what passed `p_min`, measured; what it cut, which only the prior knows.

    Without a `p_min` nothing is known of p: one level, p = 1, that every `p_min` lets pass.
    """
    passing, passed, strength = evidence.estimates()
    p, q, weight = np.ones(1), passing[:, None], np.ones((len(passing), 1))
    cut = evidence.p_min > BINS
    if cut.any():
        believed = np.minimum(np.average(PRIOR_Q[cut], weights=PRIOR_P[cut]), passing)
        p = np.array([BINS[cut][-1], 1.0])
        q = np.column_stack([believed, passing])
        weight = np.column_stack([1.0 - passed, passed])
    return SurvivalModel(p, q, weight, strength, evidence.rounds, evidence)
