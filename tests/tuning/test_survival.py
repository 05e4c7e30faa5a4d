"""What is believed about acceptance: learned from rounds, from counters, and forgotten."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.tuning.calibration_map import logit, sigmoid
from autospec.tuning.cost import simple_cost
from autospec.tuning.observations import Counters, Round
from autospec.tuning.projection import best_scalar, scalar_rate
from autospec.tuning.survival import DEPENDENCE, SurvivalModel

K = 6


def true_q(p, easier=0.0):
    return sigmoid(1.5 * logit(p) + 0.5 + easier)


def draw_rounds(count, *, seed=0, n_max=K, easier=0.0, request=None):
    """Rounds of a draft whose token is accepted with `true_q`; with `request`, some end early."""
    random = np.random.default_rng(seed)
    rounds = []
    for _ in range(count):
        length = n_max if request is None else min(n_max, int(random.integers(1, request)))
        p = random.beta(1.2, 0.6, length)
        hits = random.random(length) < true_q(p, easier)
        accepted = length if hits.all() else int(np.argmin(hits))
        rounds.append(Round(tuple(p.round(4)), accepted))
    return rounds


def mean_q(easier=0.0):
    p = np.random.default_rng(9).beta(1.2, 0.6, 100_000)
    return float(true_q(p, easier).mean())


def counted(rounds, n_max=K):
    positions = tuple(sum(r.accepted > i for r in rounds) for i in range(n_max))
    return Counters(
        drafts=len(rounds),
        drafted=sum(r.drafted for r in rounds),
        accepted=sum(r.accepted for r in rounds),
        per_position=positions,
    )


def test_the_prior_claims_little():
    prior = SurvivalModel.prior(K)
    assert prior.observed == 0
    assert np.all(np.diff(prior.survival()) < 0)
    for i in (1, K):
        mean, low, high = prior.acceptance(i)
        assert 0.5 < mean < 0.75
        assert high - low > 0.6


def test_many_rounds_find_acceptance_and_calibration():
    model = SurvivalModel.from_rounds(draw_rounds(3000), K)
    assert model.means == pytest.approx(np.full(K, mean_q()), abs=0.03)
    often = model.weight[0] > 0.02
    assert model.q[0][often] == pytest.approx(true_q(model.p[often]), abs=0.07)


def test_ten_rounds_are_not_taken_for_certainty():
    """The 90 % interval holds the truth at least that often, and no interval is a point."""
    held, widths = [], []
    for seed in range(150):
        model = SurvivalModel.from_rounds(draw_rounds(10, seed=seed), K)
        for i in (1, 2, K):
            _, low, high = model.acceptance(i)
            held.append(low <= mean_q() <= high)
            widths.append(high - low)
    assert np.mean(held) >= 0.9
    assert min(widths) > 0.1


def test_ten_lucky_rounds_do_not_promise_full_acceptance():
    model = SurvivalModel.from_rounds([Round((0.9,) * K, K)] * 10, K)
    assert np.all(model.means < 0.99)
    assert np.all(model.q < 1.0)


def test_tokens_after_the_first_mismatch_teach_nothing():
    rounds = draw_rounds(50)
    other = [
        Round(r.p[: r.accepted + 1] + (0.01,) * (K - r.accepted - 1), r.accepted) for r in rounds
    ]
    one, two = SurvivalModel.from_rounds(rounds, K), SurvivalModel.from_rounds(other, K)
    assert np.array_equal(one.q, two.q)
    assert np.array_equal(one.weight, two.weight)


def test_a_stopping_rule_does_not_pass_its_own_cuts_for_confidence():
    full = draw_rounds(2000)
    cut = []
    for one in full:
        k = next((i for i, p in enumerate(one.p) if p < 0.5), K)
        cut_p = one.p[k] if k < K else None
        cut.append(Round(one.p[:k], min(one.accepted, k), cut_p=cut_p))
    told = SurvivalModel.from_rounds(cut, K)
    blind = SurvivalModel.from_rounds([Round(r.p, r.accepted) for r in cut], K)
    truth = SurvivalModel.from_rounds(full, K)
    low = truth.p < 0.5
    share = truth.weight[1, low].sum()
    assert told.weight[1, low].sum() == pytest.approx(share, abs=0.05)
    assert blind.weight[1, low].sum() < share / 4


def test_new_text_replaces_the_old_in_a_few_hundred_rounds():
    before = SurvivalModel.from_rounds(draw_rounds(2000), K)
    after = before.update(draw_rounds(600, seed=1, easier=-2.5), memory=150)
    assert before.means[0] == pytest.approx(mean_q(), abs=0.03)
    assert after.means[0] == pytest.approx(mean_q(-2.5), abs=0.05)
    assert after.observed < 300


def test_learning_in_parts_is_learning_at_once():
    rounds = draw_rounds(96)
    parts = SurvivalModel.from_rounds(rounds[48:], K, SurvivalModel.from_rounds(rounds[:48], K))
    assert parts.means == pytest.approx(SurvivalModel.from_rounds(rounds, K).means)


def test_a_belief_moved_to_the_worse_lies_under_the_one_moved_to_the_better():
    model = SurvivalModel.from_rounds(draw_rounds(40), K)
    worse, better = model.shifted(-1.0).survival(), model.shifted(1.0).survival()
    assert np.all(worse < model.survival())
    assert np.all(model.survival() < better)


def test_a_shift_is_one_standard_error_of_what_was_seen():
    model = SurvivalModel.from_rounds(draw_rounds(400), K)
    tokens = model.strength[0] * np.cumprod([1.0, *model.means[:-1]]).sum() / DEPENDENCE
    error = np.sqrt(mean_q() * (1 - mean_q()) / tokens)
    calibrated = SurvivalModel.constant(model.means)
    alike = SurvivalModel(calibrated.p, calibrated.q, calibrated.weight, model.strength)
    moved = alike.shifted(1.0).means - alike.means
    assert moved == pytest.approx(np.full(K, error), rel=0.2)


def test_the_setting_that_counters_came_from_is_the_cut_that_is_known():
    counters = Counters(300, 600, 540, (290, 250, 0, 0, 0, 0), predicted=940)
    model = SurvivalModel.from_counters(counters, K, p_min_used=0.5)
    cost = simple_cost([10.0, 13.0, 16.0, 19.0, 22.0, 25.0, 28.0], 1.0)
    assert scalar_rate(cost, model, 3, 0, 0.45) == scalar_rate(cost, model, 3, 0, 0.0)
    assert scalar_rate(cost, model, 3, 0, 0.5) > scalar_rate(cost, model, 3, 0, 0.45)
    assert best_scalar(cost, model).p_min == 0.5


def test_full_drafts_identify_every_position_by_counters():
    rounds = draw_rounds(4000)
    model = SurvivalModel.from_counters(counted(rounds), K)
    assert model.means == pytest.approx(np.full(K, mean_q()), abs=0.04)
    assert model.observed == 4000


def test_drafts_cut_short_by_the_end_of_a_request_are_not_misses():
    rounds = draw_rounds(4000, request=12)
    counters = counted(rounds)
    naive = np.array(counters.per_position) / counters.drafts
    model = SurvivalModel.from_counters(counters, K)
    truth = np.cumprod(np.full(K, mean_q()))
    error = np.abs(model.survival() - truth)
    assert np.all(error[2:] < np.abs(naive - truth)[2:])
    assert error.max() < 0.06


def test_positions_that_no_draft_reached_stay_uncertain():
    model = SurvivalModel.from_counters(counted(draw_rounds(500, n_max=3), 3), 8)
    known, unknown = model.acceptance(3), model.acceptance(4)
    assert known[2] - known[1] < 0.2
    assert unknown[2] - unknown[1] > 0.4
    assert unknown[0] == pytest.approx(mean_q(), abs=0.1)


def test_under_p_min_only_tokens_that_passed_it_are_known():
    rounds = []
    for one in draw_rounds(4000, seed=3):
        k = next((i for i, p in enumerate(one.p) if p < 0.5), K)
        rounds.append(Round(one.p[:k], min(one.accepted, k)))
    drafted = [r for r in rounds if r.drafted]
    counters = counted(drafted)
    predicted = counters.accepted + len(rounds)
    counters = Counters(
        counters.drafts, counters.drafted, counters.accepted, counters.per_position, predicted
    )
    model = SurvivalModel.from_counters(counters, K, p_min_used=0.5)
    p = np.random.default_rng(5).beta(1.2, 0.6, 100_000)
    assert model.weight[0, 1] == pytest.approx(float((p >= 0.5).mean()), abs=0.03)
    assert model.q[0, 1] == pytest.approx(float(true_q(p[p >= 0.5]).mean()), abs=0.04)
    assert model.q[0, 0] < model.q[0, 1]


def test_counters_add_up_over_spans():
    one, two = counted(draw_rounds(200)), counted(draw_rounds(200, seed=1))
    both = counted(draw_rounds(200) + draw_rounds(200, seed=1))
    added = SurvivalModel.from_counters(two, K, prior=SurvivalModel.from_counters(one, K))
    assert added.means == pytest.approx(SurvivalModel.from_counters(both, K).means)


@given(st.lists(st.integers(0, 500), max_size=8), st.integers(0, 600), st.integers(0, 4000))
def test_counters_that_contradict_themselves_are_refused_and_others_give_numbers(
    per_position, drafts, drafted
):
    counters = Counters(drafts, drafted, sum(per_position), tuple(per_position))
    falls = all(a >= b for a, b in itertools.pairwise(per_position))
    possible = falls and drafts >= max(per_position, default=0) and drafted >= sum(per_position)
    if not possible:
        with pytest.raises(ValueError, match=r"counters|accepted"):
            SurvivalModel.from_counters(counters, 5)
        return
    for p_min in (0.0, 0.6):
        model = SurvivalModel.from_counters(counters, 5, p_min)
        assert np.all((model.means >= 0) & (model.means <= 1))
        assert all(
            0 <= low <= mean <= high <= 1 for mean, low, high in map(model.acceptance, range(1, 6))
        )


@given(
    st.lists(
        st.lists(st.floats(0, 1), max_size=9).flatmap(
            lambda p: st.builds(Round, st.just(tuple(p)), st.integers(0, len(p)))
        ),
        max_size=40,
    )
)
def test_any_rounds_give_chances(rounds):
    model = SurvivalModel.from_rounds(rounds, K)
    for table in (model.q, model.weight, model.means):
        assert np.all((table >= 0) & (table <= 1))
    assert np.allclose(model.weight.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    "bad", [Round((0.5,), 2), Round((1.5,), 0), Round((float("nan"),), 0), Round((0.5,), -1)]
)
def test_rounds_that_cannot_be_are_refused(bad):
    with pytest.raises(ValueError, match=r"accepted|probability"):
        SurvivalModel.from_rounds([bad], K)


def test_a_belief_takes_only_what_it_was_made_from():
    by_counters = SurvivalModel.from_counters(counted(draw_rounds(10)), K)
    with pytest.raises(TypeError):
        by_counters.update(draw_rounds(3))
    with pytest.raises(TypeError):
        SurvivalModel.prior(K).update(counted(draw_rounds(3)))
    with pytest.raises(ValueError, match="prior"):
        SurvivalModel.from_counters(counted(draw_rounds(3)), K, 0.5, prior=by_counters)
    with pytest.raises(ValueError, match="prior"):
        SurvivalModel.from_rounds([], 3, SurvivalModel.prior(K))


@pytest.mark.parametrize(
    ("q", "weight"),
    [([[0.5, 1.5]], [[0.5, 0.5]]), ([[0.5, 0.5]], [[0.5, 0.6]]), ([[0.5]], [[1.0]])],
)
def test_tables_that_are_no_chances_are_refused(q, weight):
    with pytest.raises(ValueError, match=r"within|sum|level"):
        SurvivalModel(np.array([0.2, 0.8]), np.array(q), np.array(weight), np.ones(1))
