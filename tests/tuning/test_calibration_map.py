"""Maps from reported probabilities to acceptance, and the choice between them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression, minimize

from autospec.tuning.calibration_map import (
    EDGE,
    Isotonic,
    Logistic,
    LogisticPrior,
    fit_isotonic,
    fit_logistic,
    log_loss,
    logit,
    pooled,
    sigmoid,
)
from autospec.tuning.evidence import RoundEvidence
from autospec.tuning.observations import Round

PRIOR = LogisticPrior(mean=(0.0, 0.7), sd=(1.0, 0.5))


def outcomes(q, count=4000, seed=0):
    random = np.random.default_rng(seed)
    p = random.uniform(0.02, 0.98, count)
    return p, (random.random(count) < q(p)).astype(float)


def test_without_evidence_the_prior_stands():
    empty = np.zeros(0)
    assert fit_logistic(np.zeros((0, 1)), empty, empty, PRIOR).coefficients == pytest.approx(
        PRIOR.mean
    )


def test_the_logistic_map_finds_its_coefficients():
    p, hit = outcomes(lambda p: sigmoid(1.2 * logit(p) + 0.8))
    fitted = fit_logistic(logit(p)[:, None], hit, np.ones(len(p)), PRIOR)
    assert fitted.coefficients == pytest.approx((0.8, 1.2), abs=0.12)


def test_more_features_take_their_part():
    random = np.random.default_rng(3)
    features = random.normal(size=(4000, 2))
    hit = (random.random(4000) < sigmoid(0.5 + features @ [1.0, -0.7])).astype(float)
    prior = LogisticPrior((0.0, 0.0, 0.0), (2.0, 2.0, 2.0))
    fitted = fit_logistic(features, hit, np.ones(4000), prior)
    assert fitted.coefficients == pytest.approx((0.5, 1.0, -0.7), abs=0.15)


def test_the_isotonic_map_bends_where_a_line_cannot():
    def step(p):
        return np.where(p < 0.5, 0.1, 0.9)

    p, hit = outcomes(step)
    features, ones = logit(p)[:, None], np.ones(len(p))
    line = fit_logistic(features, hit, ones, PRIOR)
    bent = fit_isotonic(line, features, hit, ones)
    fresh, fresh_hit = outcomes(step, seed=1)
    fresh = logit(fresh)[:, None]
    assert log_loss(bent(fresh), fresh_hit, ones) < 0.95 * log_loss(line(fresh), fresh_hit, ones)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30
    )
)
def test_maps_are_chances_and_the_isotonic_one_never_falls(cells):
    p, hits, misses = (np.array(column, dtype=float) for column in zip(*cells, strict=True))
    features = logit(p)[:, None]
    line = fit_logistic(features, hits, hits + misses, PRIOR)
    bent = fit_isotonic(line, features, hits, hits + misses)
    for each in (line, bent):
        q = each(features)
        assert np.all((q >= EDGE) & (q <= 1 - EDGE))
        assert np.isfinite(log_loss(q, hits, hits + misses))
    order = np.argsort(line.score(features))
    assert np.all(np.diff(bent(features)[order]) >= -1e-12)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 100)), min_size=1, max_size=40),
)
def test_pooling_finds_what_the_reference_finds(points):
    values, weights = (np.array(column) for column in zip(*points, strict=True))
    expected = isotonic_regression(values, weights=weights).x
    assert pooled(values, weights) == pytest.approx(expected, abs=1e-9)


def rounds(q, count, seed):
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        p = random.uniform(0.02, 0.98, 4)
        hits = random.random(4) < q(p)
        found.append(Round(tuple(p), 4 if hits.all() else int(np.argmin(hits))))
    return found


def test_the_map_that_predicts_unseen_rounds_better_is_taken():
    steps = rounds(lambda p: np.where(p < 0.5, 0.15, 0.95), 800, 0)
    line = rounds(lambda p: sigmoid(0.9 * logit(p) + 0.3), 800, 0)
    assert isinstance(RoundEvidence.empty(4).add(steps, memory=np.inf).best_map(), Isotonic)
    assert isinstance(RoundEvidence.empty(4).add(line, memory=np.inf).best_map(), Logistic)


def test_few_outcomes_and_the_prior_meet_at_the_most_probable_coefficients():
    features = logit([0.3, 0.6, 0.9])[:, None]
    hits, trials = np.array([1.0, 2.0, 2.0]), np.array([2.0, 3.0, 2.0])
    prior = LogisticPrior(mean=(0.5, 1.5), sd=(0.4, 0.3))

    def improbable(c):
        x = c[0] + c[1] * features[:, 0]
        belief = np.sum(((c - np.array(prior.mean)) / np.array(prior.sd)) ** 2) / 2
        return float(belief - hits @ x + trials @ np.logaddexp(0.0, x))

    best = minimize(improbable, x0=[0.0, 0.0], method="Nelder-Mead", tol=1e-10).x
    assert fit_logistic(features, hits, trials, prior).coefficients == pytest.approx(best, abs=1e-4)
