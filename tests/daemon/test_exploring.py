"""Where one round is let go further than the policy asks for, and how many may."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autospec.daemon.retuning.exploring import FIRST, KNOWN, Ahead, Budget, hope, length, reach
from autospec.daemon.retuning.exploring import with_exploring as opened
from autospec.engine.live.policy import at_most
from autospec.tuning.cost import RoundCost, simple_cost
from autospec.tuning.shared import best_policy
from autospec.tuning.survival import SurvivalModel

KNOWN_WELL = SurvivalModel.constant([0.9] * 6)


def cost(doubt: float) -> RoundCost:
    """Drafts of 4 and more look dear; `doubt` says how far off that may be."""
    known = simple_cost([50.0, 52.0, 54.0, 56.0, 90.0, 95.0, 100.0], 1.0)
    return replace(known, spread_ms=doubt * known.verify_ms * (np.arange(7) > 3))


def test_what_is_known_well_leaves_no_hope_for_longer_drafts() -> None:
    policy = best_policy(cost(0.0), KNOWN_WELL)
    assert reach(policy) == 3
    assert hope(cost(0.0), KNOWN_WELL) == 3


def test_doubt_about_the_cost_of_long_drafts_is_hope_for_them() -> None:
    assert hope(cost(0.4), KNOWN_WELL) == 6


def test_a_policy_that_drafts_nothing_reaches_nowhere() -> None:
    dear = simple_cost([50.0] + [500.0] * 6, 100.0)
    assert reach(best_policy(dear, KNOWN_WELL)) == 0


def test_the_first_few_rounds_explore_beforehand_where_there_is_hope() -> None:
    budget, explored = Budget(0.01), 0
    while budget.allows(drafting=True, hopeful=True):
        budget, explored = budget.after(1, 1), explored + 1
        assert not budget.allows(drafting=True)
    assert explored == FIRST
    assert not budget.after(100 * FIRST, 0).allows(drafting=True, hopeful=True)
    assert budget.after(100 * FIRST + 100, 0).allows(drafting=True, hopeful=True)


@pytest.mark.parametrize("hopeful", [False, True])
def test_nothing_is_explored_where_the_user_wants_none(hopeful: bool) -> None:
    budget = Budget(0.0, rounds=100_000)
    assert not budget.allows(drafting=True, hopeful=hopeful)
    assert not budget.allows(drafting=False, hopeful=hopeful)


def test_where_nothing_is_drafted_one_round_in_sixteen_explores() -> None:
    budget = Budget(0.01, rounds=16)
    assert budget.allows(drafting=False)
    assert not budget.allows(drafting=True)
    assert not budget.after(0, 1).allows(drafting=False)


def test_the_next_length_is_one_beyond_the_first_position_that_is_not_known() -> None:
    strength = [99.0, 99.0, KNOWN, KNOWN - 1.0, 0.0, 0.0]
    assert length(2, strength, 6) == 5
    assert length(5, strength, 6) == 6
    assert length(2, [99.0] * 6, 6) == 6


def test_a_bucket_of_depth_is_opened_and_the_rest_stays() -> None:
    table = opened(at_most(2, 6), Ahead(100.0, 4.0, 5))
    assert table.depth_from == (0.0, 100.0, 104.0)
    sure = [1.0] * 6
    assert [table.kept(sure, busy=1, depth=d) for d in (99.0, 100.0, 103.0, 104.0)] == [2, 5, 5, 2]


@pytest.mark.parametrize("ahead", [Ahead(0.0, 4.0, 5), Ahead(96.0, 8.0, 5), Ahead(100.0, 4.0, 5)])
def test_no_bucket_is_opened_over_the_beginning_of_another(ahead: Ahead) -> None:
    table = opened(at_most(2, 6), Ahead(100.0, 4.0, 5))
    assert opened(table, ahead) is table
