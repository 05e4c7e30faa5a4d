"""Simulated phases: settings that follow what happens, against the best that stand still."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autospec.tuning.cost import DraftCost
from autospec.tuning.following import Tuner
from autospec.tuning.livecost import LiveCost
from autospec.tuning.mixture import Mixture, StepTimes
from autospec.tuning.observations import Round
from autospec.tuning.simulate import Result, simulate
from autospec.tuning.survival import SurvivalModel

DATA = Path(__file__).parent.parent / "data"


def read(name):
    return Mixture.from_json(json.loads((DATA / f"{name}.json").read_text()))


def short(name, phases, tokens):
    """The mixture with these of its phases only, each of so many tokens."""
    mixture = read(name)
    return replace(mixture, phases=tuple(replace(mixture.phases[i], tokens=tokens) for i in phases))


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("mixture", 1.03),
        ("mixture_moe", 1.08),
        ("mixture_dense", 1.06),
        ("mixture_wide", 1.08),
        ("mixture_field", 1.02),
    ],
)
def test_following_text_load_and_depth_beats_the_best_triple_for_all_of_them(name, ratio):
    """Against one triple chosen in hindsight for the whole mixture; and close behind a player
    who picks another triple for every phase, in hindsight too."""
    result = simulate(read(name))
    assert result.ratio >= ratio
    assert result.total(result.tuned) >= 0.97 * result.total(result.best_of_phase)
    assert result.alarms >= 2, "the texts differ: the tuner has to notice"
    assert result.total(result.static) <= result.total(result.best_of_phase)


def test_a_limit_for_each_round_helps():
    mixture = short("mixture_dense", [1, 4], 2000)
    bound, free = simulate(mixture, limit_is_free=False), simulate(mixture)
    assert free.total(free.tuned) > bound.total(bound.tuned)
    assert free.static == bound.static


def test_one_phase_is_played_as_well_as_its_best_triple():
    result = simulate(short("mixture_moe", [0], 2000))
    assert result.static == result.best_of_phase
    assert result.ratio >= 0.95
    assert result.alarms <= 1


def test_simulations_repeat_themselves():
    mixture = short("mixture_wide", [0, 1], 200)
    one, other = simulate(mixture), simulate(mixture)
    assert one == other


def test_a_tuner_told_of_worse_text_drafts_less():
    mixture = read("mixture_moe")
    tuner = Tuner(
        LiveCost(mixture.machine.target, DraftCost("autoregressive", mixture.machine.draft)),
        SurvivalModel.prior(mixture.n_max),
    )
    easy = [Round((0.8,) * 8, 8) for _ in range(100)]
    hard = [Round((0.8,) * 8, 0) for _ in range(100)]
    before = tuner.observe(easy, slots=1, depth=0.0)
    after = before.observe(hard, slots=1, depth=0.0)
    assert after.alarms == before.alarms + 1
    assert after.policy(1, 0.0).mean_drafted < 0.5 * before.policy(1, 0.0).mean_drafted


def test_the_truth_draws_what_the_text_says():
    mixture = read("mixture")
    random = np.random.default_rng(1)
    drawn = {name: mixture.draw(text, 4000, random) for name, text in mixture.texts.items()}
    accepted = {name: trace.accepted.mean() for name, trace in drawn.items()}
    assert accepted["code"] > accepted["chat"] > accepted["prose"] > 0.5
    chat = drawn["chat"]
    hit, missed = chat.p[chat.accepted >= 1, 0], chat.p[chat.accepted == 0, 0]
    assert hit.mean() > missed.mean() + 0.1


def test_slots_draft_and_are_verified_together():
    times = StepTimes(2, verify=np.arange(10.0, 20.0), draft=np.array([0.0, 3.0, 4.0]))
    assert times.drafting(np.array([2, 1, 0, 0])).tolist() == [4 + 3, 0]
    assert times.verifying(np.array([2, 1, 0, 0])).tolist() == [13, 10]


def test_totals_weigh_phases_by_their_time():
    phases = short("mixture", [0, 1], 100).phases
    result = Result(
        phases,
        tuned=(10.0, 30.0),
        static=(10.0, 10.0),
        best_of_phase=(10.0, 30.0),
        plain=(5.0, 5.0),
        triple=(1, 0, 0.0),
        alarms=0,
        restarts=0,
    )
    assert result.total(result.tuned) == pytest.approx(15)
    assert result.ratio == pytest.approx(1.5)


@pytest.mark.parametrize("lost", ["machine", "texts", "phases", "seed", "reported"])
def test_a_mixture_that_lacks_something_is_refused(lost):
    data = json.loads((DATA / "mixture.json").read_text())
    del data[lost]
    with pytest.raises(ValueError, match=lost):
        Mixture.from_json(data)
