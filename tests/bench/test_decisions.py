"""The regression guard: no change may make what is decided on recorded rounds dearer.

Counts, not seconds: it says the same on every machine. See `decisions.py` for how to renew the
golden file after a change that is meant to decide otherwise.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from decisions import GOLDEN, every_case, judge, rounds_of

from autospec.tuning.replay import Cut, Trace

SLACK = 1.005
"""Decisions that cost this much more are worse; less is a rounding of another machine."""

KEPT: dict[str, Any] = json.loads(GOLDEN.read_text())


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return every_case(KEPT["yardsticks"])


@pytest.mark.parametrize("case", KEPT["cases"])
def test_no_decision_costs_more_than_it_did(found: dict[str, dict[str, Any]], case: str) -> None:
    now, before = found[case], KEPT["cases"][case]
    assert now["ms_per_token"] <= before["ms_per_token"] * SLACK, (
        f"{case} was {before}, is {now}; if that is meant, run: python tests/bench/decisions.py"
    )


def test_the_golden_file_holds_every_case(found: dict[str, dict[str, Any]]) -> None:
    assert set(found) == set(KEPT["cases"])


def test_all_together_are_no_worse_than_plain_decoding() -> None:
    for name, measure in KEPT["yardsticks"].items():
        cases = [one for case, one in KEPT["cases"].items() if case.startswith(f"{name},")]
        assert all(one["ms_per_token"] <= measure["plain_ms"] * 1.001 for one in cases)


def test_the_judge_adds_up_what_each_round_paid() -> None:
    rounds = rounds_of("same_weights")[:4]
    unseen = Trace.of(rounds[1::2])
    cut = Cut(unseen.drafted * 0 + 1, unseen.drafted * 0 + 2)
    measure = {"plain_ms": 10.0, "draft_ms": [0, 1, 2], "verify_ms": [10, 15, 20]}
    told = judge(cut, rounds, measure)
    assert (told["rounds"], told["drafted"], told["paid"]) == (2, 2, 4)
    assert told["ms_per_token"] == pytest.approx(2 * 17 / (2 + told["accepted"]))
    assert judge(None, rounds, measure)["ms_per_token"] == 10.0
