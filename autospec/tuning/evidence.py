"""Sufficient statistics of what was observed, with forgetting.

Tables of counts instead of stored rounds: adding is cheap, forgetting is a factor, and the size
does not grow with time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from autospec.tuning.calibration_map import (
    Isotonic,
    Logistic,
    LogisticPrior,
    fit_isotonic,
    fit_logistic,
    log_loss,
    logit,
    sigmoid,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from autospec.tuning.calibration_map import CalibrationMap
    from autospec.tuning.observations import Counters, Round

    Floats = NDArray[np.float64]

EDGES = np.concatenate([np.arange(0.0, 1.0, 0.05), [0.975, 0.99, 1.0]])
"""Levels of p: steps of 0.05, so that every `p_min` by 0.05 falls between two; finer near 1."""
BINS = (EDGES[:-1] + EDGES[1:]) / 2

PRIOR_ROUNDS = 4.0
PRIOR_P = np.diff(EDGES) * BINS**0.2 * (1.0 - BINS) ** -0.4
PRIOR_P = PRIOR_P / PRIOR_P.sum()
PRIOR_LOGISTIC = LogisticPrior(mean=(0.0, 0.7, 0.0), sd=(1.0, 0.5, 0.3))
"""Beliefs about constant, slope over logit p, and slope over log position."""

PRIOR_Q = sigmoid(PRIOR_LOGISTIC.mean[0] + PRIOR_LOGISTIC.mean[1] * logit(BINS))

BLOCK = 16
"""Rounds that both maps predict before they are learned from."""


def _kept(old: float, new: float, memory: float) -> float:
    """What is kept of `old` rounds' evidence when `new` ones come: never worth over `memory`."""
    return math.exp(-new / memory) * min(1.0, memory / max(old, 1.0))


@dataclass(frozen=True, eq=False)
class RoundEvidence:
    """Counts from full rounds: `trials`, `hits` and `cut` are (K, M), by position and level of p.

    A trial is a verified token whose predecessors were all accepted; what comes after a mismatch
    is conditioned on a wrong text and tells nothing. `cut` counts tokens at which a stopping
    rule ended a draft that was right so far: without them the rule's own choices would pass for
    the draft's confidence. `losses` are the (faded) log losses of the logistic and the isotonic
    map, each on rounds it had not seen yet.
    """

    trials: Floats
    hits: Floats
    cut: Floats
    rounds: float = 0.0
    losses: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def empty(cls, n_max: int) -> RoundEvidence:
        if n_max < 0:
            raise ValueError("n_max is not negative")
        zeros = np.zeros((n_max, len(BINS)))
        return cls(zeros, zeros, zeros)

    def add(self, rounds: Sequence[Round], *, memory: float) -> RoundEvidence:
        """With `rounds` (the oldest first) added, older ones faded by e over `memory` rounds."""
        evidence = self
        for start in range(0, len(rounds), BLOCK):
            evidence = evidence._add_block(rounds[start : start + BLOCK], memory)
        return evidence

    def _add_block(self, rounds: Sequence[Round], memory: float) -> RoundEvidence:
        trials, hits, cut = _tally(rounds, len(self.trials))
        keep = _kept(self.rounds, len(rounds), memory)
        losses = self.losses
        if self.rounds >= BLOCK:
            features = self.features()
            logistic, isotonic = self.maps()
            losses = (
                keep * losses[0] + log_loss(logistic(features), hits.ravel(), trials.ravel()),
                keep * losses[1] + log_loss(isotonic(features), hits.ravel(), trials.ravel()),
            )
        return RoundEvidence(
            keep * self.trials + trials,
            keep * self.hits + hits,
            keep * self.cut + cut,
            keep * self.rounds + len(rounds),
            losses,
        )

    def features(self) -> Floats:
        """logit p and log position of every cell, (K·M, 2)."""
        n_max, levels = self.trials.shape
        positions = np.log(np.arange(1.0, n_max + 1.0))
        return np.column_stack([np.tile(logit(BINS), n_max), np.repeat(positions, levels)])

    def maps(self) -> tuple[Logistic, Isotonic]:
        """Both calibration maps, fitted to everything counted."""
        features, hits, trials = self.features(), self.hits.ravel(), self.trials.ravel()
        logistic = fit_logistic(features, hits, trials, PRIOR_LOGISTIC)
        seen = trials > 0
        if not seen.any():
            seen = np.ones_like(seen)
        return logistic, fit_isotonic(logistic, features[seen], hits[seen], trials[seen])

    def best_map(self) -> CalibrationMap:
        """The map with the smaller loss on what it had not seen; logistic until that is known."""
        logistic, isotonic = self.maps()
        return isotonic if self.losses[1] < self.losses[0] else logistic

    def calibrated(self) -> Floats:
        """q (K, M): the best map on every cell."""
        if self.trials.size == 0:
            return self.trials
        return self.best_map()(self.features()).reshape(self.trials.shape)


def _tally(rounds: Sequence[Round], n_max: int) -> tuple[Floats, Floats, Floats]:
    """Trials, hits and cuts of `rounds` by position and level of p, each (n_max, M)."""
    told: list[tuple[int, float, bool]] = []
    cut: list[tuple[int, float]] = []
    for one in rounds:
        if not 0 <= one.accepted <= one.drafted:
            raise ValueError(f"more accepted than drafted: {one}")
        end = min(one.accepted + 1, one.drafted, n_max)
        told.extend((i, one.p[i], i < one.accepted) for i in range(end))
        if one.cut_p is not None and one.accepted == one.drafted < n_max:
            cut.append((one.drafted, one.cut_p))
    trials = _count([(i, p) for i, p, _ in told], n_max)
    hits = _count([(i, p) for i, p, hit in told if hit], n_max)
    return trials, hits, _count(cut, n_max)


def _count(cells: Sequence[tuple[int, float]], n_max: int) -> Floats:
    """How often each (position, level of p) occurs, (n_max, M)."""
    position = np.array([i for i, _ in cells], dtype=np.intp)
    p = np.array([p for _, p in cells], dtype=np.float64)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError("a draft reported a probability outside [0, 1]")
    level = np.clip(np.searchsorted(EDGES, p, side="right") - 1, 0, len(BINS) - 1)
    counts = np.bincount(position * len(BINS) + level, minlength=n_max * len(BINS))
    return counts.astype(np.float64).reshape(n_max, len(BINS))


@dataclass(frozen=True, eq=False)
class CounterEvidence:
    """Totals of the engine's counters under one setting (one `n_max`, one `p_min`).

    What they identify: position 1 exactly. Later positions only up to the length that drafts
    really had, since a draft that ended early counts as a miss at every later position: with
    `ℓ_i` the share of drafts of at least i tokens, counted accepts are `n·ℓ_i·S_i`. Only the
    mean length Σℓ_i is counted, so a shape is taken for ℓ: a straight line without `p_min`
    (requests end evenly over the positions), a geometric one with it (each token is cut with
    the same chance). Under `p_min` what is identified is the acceptance of tokens that passed.
    Positions beyond the `n_max` that was set, which `per_position` has as many entries as, are
    not identified at all: pooled acceptance, worth only the prior.
    """

    n_max: int
    p_min: float
    accepted: Floats
    drafts: float = 0.0
    drafted: float = 0.0
    empty_drafts: float = 0.0
    rounds: float = 0.0

    @classmethod
    def empty(cls, n_max: int, p_min: float) -> CounterEvidence:
        if not 0 <= p_min <= 1:
            raise ValueError("p_min lies within [0, 1]")
        return cls(n_max, p_min, np.zeros(0))

    def add(self, counters: Counters, *, memory: float) -> CounterEvidence:
        """With a span of `counters` added, older ones faded by e over `memory` rounds.

        Raises ValueError where the counters contradict themselves.
        """
        per_position = np.array(counters.per_position, dtype=np.float64)
        if counters.drafts < 0 or np.any(per_position < 0) or np.any(np.diff(per_position) > 0):
            raise ValueError(f"counters that cannot be: {counters}")
        if len(per_position) and per_position[0] > counters.drafts:
            raise ValueError(f"more accepted tokens than drafts: {counters}")
        if not sum(counters.per_position) <= counters.drafted:
            raise ValueError(f"more accepted tokens than drafted: {counters}")
        empty = max(0, counters.predicted - counters.accepted - counters.drafts)
        empty = empty if counters.predicted and self.p_min > 0 else 0
        count = counters.drafts + empty
        keep = _kept(self.rounds, count, memory)
        length = max(len(per_position), len(self.accepted))
        accepted = np.zeros(length)
        accepted[: len(self.accepted)] = keep * self.accepted
        accepted[: len(per_position)] += per_position
        return replace(
            self,
            accepted=accepted,
            drafts=keep * self.drafts + counters.drafts,
            drafted=keep * self.drafted + counters.drafted,
            empty_drafts=keep * self.empty_drafts + empty,
            rounds=keep * self.rounds + count,
        )

    def estimates(self) -> tuple[Floats, Floats, Floats]:
        """Acceptance of passed tokens, the share that passes, and their worth; each (K,)."""
        m = min(len(self.accepted), self.n_max)
        lengths = self._lengths(len(self.accepted))[:m]
        reached = np.concatenate([[self.drafts], self.accepted[: m - 1]]) if m else np.zeros(0)
        previous = np.concatenate([[1.0], lengths[:-1]]) if m else np.zeros(0)
        trials = reached * np.divide(lengths, previous, out=np.zeros(m), where=previous > 0)
        hits = np.minimum(self.accepted[:m], trials)
        pooled = hits.sum() + PRIOR_ROUNDS * float(PRIOR_P @ PRIOR_Q)
        pooled = float(pooled / (trials.sum() + PRIOR_ROUNDS))
        rate = np.full(self.n_max, pooled)
        rate[:m] = (hits + PRIOR_ROUNDS * pooled) / (trials + PRIOR_ROUNDS)
        strength = np.full(self.n_max, PRIOR_ROUNDS)
        strength[:m] += trials
        passed = np.ones(self.n_max)
        if self.p_min > 0 and m:
            step = float(lengths[1] / lengths[0]) if m > 1 and lengths[0] > 0 else 1.0
            passed[:] = step
            passed[0] = self.drafts / max(self.drafts + self.empty_drafts, 1.0)
        return rate, passed, strength

    def _lengths(self, m: int) -> Floats:
        """ℓ_i (m,): the share of counted drafts with at least i tokens, of the known mean."""
        if m == 0 or self.drafts == 0:
            return np.ones(m)
        mean = min(max(self.drafted / self.drafts, 1.0), float(m))
        index = np.arange(m, dtype=np.float64)
        if m == 1 or mean >= m:
            return np.ones(m)
        if self.p_min <= 0:
            return np.clip(1.0 - 2.0 * (1.0 - mean / m) * index / (m - 1.0), 0.0, 1.0)
        low, high = 0.0, 1.0
        for _ in range(60):
            ratio = (low + high) / 2
            low, high = (ratio, high) if np.sum(ratio**index) < mean else (low, ratio)
        return np.asarray(((low + high) / 2) ** index)
