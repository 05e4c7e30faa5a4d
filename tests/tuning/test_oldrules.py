"""The rules of the pull requests against the optimal one, on the curves they were made for."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.tuning.oldrules import ACCEPTANCES, rule_14132, rule_17034, verdicts
from autospec.tuning.powerlaw import PowerLaw, decode, encode, fit_power

SEED = json.loads((Path(__file__).parent.parent / "data/seed_curves.json").read_text())["curves"]
curves = st.lists(st.floats(0.01, 2.0), min_size=4, max_size=40).map(lambda tail: [1.0, 0.9, *tail])


def constant(acceptance, length=31):
    return [acceptance**i for i in range(1, length + 1)]


def test_the_old_rules_do_what_the_design_says():
    coder, deepseek, qwen3, _ = (curve["relative_cost"] for curve in SEED)
    assert rule_17034(coder, constant(0.5)) == 0
    assert rule_17034(qwen3, constant(0.9)) == 15
    assert rule_17034(deepseek, constant(0.99)) == 0, "the second batch costs more than plain"
    assert rule_14132(fit_power(deepseek), constant(0.99)) > 3, "three are drafted regardless"
    assert rule_14132(fit_power(deepseek), constant(0.99, length=2)) == 0
    assert rule_14132(PowerLaw(0.5, 0.5, 2), [0.9, 0.4]) == 0, "shorter than draft-min"


@given(curves, st.lists(st.floats(0, 1), max_size=50))
def test_rules_keep_no_more_than_was_drafted(curve, p):
    survival = np.cumprod(p).tolist()
    assert 0 <= rule_17034(curve, survival) <= min(len(p), len(curve) - 1)
    assert 0 <= rule_14132(fit_power(curve), survival) <= len(p)


@pytest.mark.parametrize("draft_cost", [0.0, 0.05])
@pytest.mark.parametrize("curve", SEED, ids=lambda curve: curve["name"][:12])
def test_the_optimal_rule_is_never_under_the_old_ones_nor_under_plain(curve, draft_cost):
    law = decode(encode(fit_power(curve["relative_cost"]), 32).p_min)
    acceptances = np.linspace(0.3, 0.95, 14).tolist()
    for verdict in verdicts(
        curve["relative_cost"], law, draft_cost=draft_cost, acceptances=acceptances
    ):
        assert verdict.optimal.speedup >= 1
        assert verdict.optimal.speedup >= verdict.average.speedup - 1e-9
        assert verdict.optimal.speedup >= verdict.law.speedup - 1e-9
        assert 0 <= verdict.loss < 1


def test_the_figures_of_the_design():
    (half,) = verdicts(SEED[0]["relative_cost"], None, acceptances=[0.5])
    assert half.average.drafted == 0
    assert half.optimal.drafted == 3
    assert half.optimal.speedup == pytest.approx(1.74, abs=0.005)
    (high,) = verdicts(SEED[2]["relative_cost"], None, acceptances=[0.9])
    assert high.average.drafted == 15
    assert high.optimal.drafted == 8


def test_short_drafts_that_always_lose_are_left_out_by_themselves():
    """On the deepseek curve one and two drafted tokens cost more than they can ever bring."""
    drafted = {v.optimal.drafted for v in verdicts(SEED[1]["relative_cost"], None)}
    assert drafted.isdisjoint({1, 2})
    assert max(drafted) > 2


@pytest.mark.parametrize("draft_cost", [-0.1, float("nan"), 1000.0])
def test_a_draft_cost_that_cannot_be_is_refused(draft_cost):
    with pytest.raises(ValueError, match="draft step"):
        verdicts(SEED[0]["relative_cost"], None, draft_cost=draft_cost)


@settings(max_examples=25, deadline=None)
@given(curves, st.floats(0, 2))
def test_no_curve_makes_the_optimum_lose(curve, draft_cost):
    for verdict in verdicts(curve, fit_power(curve), draft_cost=draft_cost):
        assert verdict.acceptance in ACCEPTANCES
        assert verdict.optimal.speedup >= max(1, verdict.average.speedup - 1e-9)
        assert verdict.optimal.speedup >= verdict.law.speedup - 1e-9


@pytest.mark.parametrize(
    ("survival", "kept"),
    [([], 0), ([0.9], 0), ([0.9, 0.5], 2), ([0.9, 0.49], 0), ([0.9, 0.8, 0.4], 3), ([0.9] * 9, 9)],
)
def test_the_law_is_asked_from_draft_min_on(survival, kept):
    """y(b) = 0.5/(b − 2): two tokens make a batch of three, which asks for 0.5, three for 0.25."""
    assert rule_14132(PowerLaw(0.5, 1.0, 2), survival) == kept


def test_the_vector_of_17034_ends_the_draft_where_it_ends():
    assert rule_17034([1.0, 0.5, 0.5], [0.9, 0.9, 0.9, 0.9]) == 2
    assert rule_17034([1.0, 0.5, 0.5], [0.5, 0.4]) == 1


def test_an_old_rule_pays_for_the_step_that_stopped_it():
    (verdict,) = verdicts([1.0, 0.6, 0.6], PowerLaw(0.6, 0.1, 1), draft_cost=0.1, acceptances=[0.5])
    assert verdict.average.speedup == pytest.approx(1 / 1.1)
    assert verdict.law.speedup == pytest.approx(1 / 1.1)
    assert verdict.optimal.speedup == pytest.approx(1.0 if 1.5 / 1.4 < 1 else 1.5 / 1.4)
