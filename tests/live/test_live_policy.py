"""Policies as the library is told them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autospec.engine.live.memory import BUSY, DEPTHS, PolicyFlag
from autospec.engine.live.policy import LivePolicy, at_most, constant
from autospec.tuning.cost import simple_cost
from autospec.tuning.stopping import Policy, solve
from autospec.tuning.survival import SurvivalModel

pytestmark = pytest.mark.live


def a_policy(thresholds: tuple[float, ...]) -> Policy:
    return Policy(thresholds, 10.0, 8.0, 7.0, 1.0, 1.0, 1.5)


def test_solved_policies_become_a_table() -> None:
    survival = SurvivalModel.prior(4)
    policies = {
        (busy, depth): a_policy((busy / 10, depth / 1e4, 0.5, math.inf))
        for busy in (1, 3)
        for depth in (0.0, 512.0, 2048.0)
    }
    live = LivePolicy.of(policies, survival, at_least_plain=True)
    assert live.thresholds.shape == (3, 3, 4)
    assert live.depth_from == (0.0, 256.0, 1280.0)
    # Two busy slots have no policy of their own.
    assert live.thresholds[:, 0, 0].tolist() == [0.1, 0.1, 0.3]
    assert live.acceptance.shape == (4, len(survival.p))
    record = live.record(6)[0]
    assert record["flags"] == PolicyFlag.IN_FORCE | PolicyFlag.AT_LEAST_PLAIN
    assert (record["number"], record["positions"], record["busy"], record["depths"]) == (6, 4, 3, 3)
    assert math.isinf(record["threshold"][0, 0, 3])


def test_nothing_is_kept_beyond_the_n_max_of_a_policy() -> None:
    survival = SurvivalModel.prior(4)
    short, long = a_policy((0.1, 0.2)), a_policy((0.1, 0.2, 0.3, 0.4))
    live = LivePolicy.of({(1, 0.0): long, (2, 0.0): short}, survival, sole=True)
    assert live.kept([1.0] * 4, busy=1, depth=0) == 4
    assert live.kept([1.0] * 4, busy=2, depth=0) == 2
    assert live.record(1)["flags"][0] & PolicyFlag.SOLE


def test_the_table_keeps_what_the_solved_policy_keeps() -> None:
    survival = SurvivalModel.prior(6)
    cost = simple_cost([100.0, 110, 125, 140, 150, 170, 190], 12.0)
    solved = solve(cost, survival)
    live = LivePolicy.of({(1, 0.0): solved}, survival)
    random = np.random.default_rng(2)
    for _ in range(50):
        levels = random.integers(0, len(survival.p), 6)
        p = survival.p[levels]
        q = np.cumprod(survival.q[np.arange(6), levels])
        below = np.flatnonzero(q < np.array(solved.thresholds))
        expected = int(below[0]) if below.size else 6
        assert live.kept(p.tolist(), busy=1, depth=0) == expected


@pytest.mark.parametrize("tokens", [0, 1, 5, 8])
def test_at_most_keeps_so_many(tokens: int) -> None:
    assert at_most(tokens, 8).kept([0.1] * 8, busy=1, depth=0) == tokens


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"thresholds": np.zeros((BUSY + 1, 1, 2))}, "no room"),
        ({"thresholds": np.zeros((1, DEPTHS + 1, 2))}, "no room"),
        ({"thresholds": np.full((1, 1, 2), np.nan)}, "thresholds"),
        ({"thresholds": np.full((1, 1, 2), -0.1)}, "thresholds"),
        ({"depth_from": (5.0,)}, "depth"),
        ({"depth_from": (0.0, 5.0)}, "depth"),
        ({"level": np.array([1.0, 0.0])}, "rise"),
        ({"level": np.array([0.0, 0.5, 1.0])}, "table"),
        ({"acceptance": np.full((2, 2), 1.5)}, "within"),
        ({"acceptance": np.full((2, 2), np.nan)}, "within"),
    ],
)
def test_a_policy_without_sense_is_refused(change: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        replace(constant([0.5, 0.5]), **change)  # type: ignore[arg-type]
