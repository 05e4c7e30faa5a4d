"""From rows to figures: pairs, disturbed rows, diverging answers, goals."""

from __future__ import annotations

from typing import Any

import pytest

from autospec.bench.goals import goals
from autospec.bench.prediction import cost_errors
from autospec.bench.results import acceptance, diverged, narrow, ratio, speed, usable
from autospec.bench.suite import QUICK, Cell, cells_of, default_depths
from autospec.bench.workloads import requests_of
from autospec.calibration.result import Calibration
from autospec.tuning.cost import StepTime

CODE = Cell("code")


def sample(ms: float, text: str = "t", tokens: int = 40, **more: Any) -> dict[str, Any]:
    fields = {"ms": ms, "tokens": tokens, "drafted": 0, "accepted": 0, "answers": [text]}
    return fields | {"extra": {}, "prompt_tokens": 10} | more


def row(number: int, disturbed: str | None = None, **samples: dict[str, Any]) -> dict[str, Any]:
    return {"cell": "code", "row": number, "disturbed": disturbed, "samples": samples}


def test_only_rows_that_both_answered_are_compared() -> None:
    rows = [
        row(0, plain=sample(100), live=sample(50)),
        row(1, plain=sample(100), live=sample(1, tokens=3)),
        row(2, plain=sample(100)),
        row(3, plain=sample(200), live=sample(100)),
    ]
    found = ratio(rows, CODE, "live", "plain")
    assert found is not None
    assert (found.low, found.value, found.high) == pytest.approx((2, 2, 2))
    assert ratio(rows, CODE, "live", "scalar") is None
    assert speed(rows, CODE, "scalar") is None


def test_disturbed_rows_are_left_out_where_enough_quiet_ones_remain() -> None:
    quiet = [row(n, plain=sample(100)) for n in range(3)]
    loud = row(3, "other processes took 40% of the cores", plain=sample(900))
    assert usable([*quiet, loud]) == quiet
    assert usable([*quiet[:2], loud]) == [*quiet[:2], loud]


def test_answers_that_differ_are_counted_one_by_one() -> None:
    rows = [
        row(0, plain=sample(1, "a"), live=sample(1, "a")),
        row(1, plain=sample(1, "b"), live=sample(1, "c")),
        row(2, plain=sample(1, "d")),
    ]
    assert diverged(rows, "live") == (1, 2)


def test_acceptance_is_of_tokens() -> None:
    rows = [row(0, live=sample(1, drafted=10, accepted=9)), row(1, live=sample(1, drafted=30))]
    assert acceptance(rows, "live") == pytest.approx(9 / 40)
    assert acceptance(rows, "plain") is None


def test_a_cell_is_done_once_every_ratio_is_narrow() -> None:
    steady = [row(n, plain=sample(100), live=sample(50 + n / 10)) for n in range(4)]
    loose = [row(n, plain=sample(100), live=sample(20 + 30 * n)) for n in range(4)]
    assert narrow(steady, CODE, 0.03)
    assert not narrow(loose, CODE, 0.03)
    assert not narrow(steady[:1], CODE, 0.03)


def test_cells_have_names_of_their_own_and_ask_what_they_say() -> None:
    cells = cells_of(("code", "mixture"), (1, 2, 4), (512,))
    names = [cell.key for cell in cells]
    assert names == ["code", "mixture", "mixture/slots=2", "mixture/slots=4", "depth=512"]
    known = requests_of()
    asked = [one.messages for cell in cells for one in cell.requests(1, known)]
    assert len(asked) == 1 + 1 + 2 + 4 + 1
    assert Cell("code", 4).requests(0, known) != Cell("code", 4).requests(1, known)
    assert default_depths(200, 96) == ()
    assert all(depth + QUICK.tokens < 4096 for depth in default_depths(4096, QUICK.tokens))


def calibration() -> Calibration:
    steps = tuple(StepTime(b, 0, 50.0 + 5 * b, 0.5, 5) for b in range(1, 9))
    draft = tuple(StepTime(b, 0, 5.0, 0.1, 5) for b in range(1, 9))
    return Calibration("k", "m", 0.0, 60.0, "v", 7, steps, draft)


def live_round(drafted: int, factor: float, predicted: float | None) -> dict[str, Any]:
    truth = 5.0 * drafted + 50 + 5 * (drafted + 1) + 5
    return {
        "drafted": drafted,
        "accepted": drafted // 2,
        "paid": drafted,
        "busy": 1,
        "depth": 0,
        "draft_ms": 5.0 * drafted * factor,
        "verify_ms": (truth - 5.0 * drafted) * factor,
        "predicted_ms": predicted,
    }


def test_a_model_that_learns_overheads_predicts_better_than_one_that_does_not() -> None:
    rounds = [live_round(2 + n % 4, 1.3, 5.0 * (2 + n % 4) + 70) for n in range(400)]
    found = cost_errors(rounds, calibration())
    assert found["rounds"] == 400
    assert found["in_force"]["all"] > 0.1
    assert found["learned"]["after_200"] < 0.03
    assert found["headline"] == found["in_force"]["after_200"]


def test_without_rounds_nothing_is_claimed() -> None:
    found = cost_errors([live_round(2, 1.0, None)], calibration())
    assert found["rounds"] == 0
    assert found["headline"] is None


def test_goals_say_what_is_missed_and_what_is_unknown() -> None:
    figures = {
        "interval_vs_plain": [0.97, 1.2],
        "ratio_vs_default": 1.5,
        "ratio_vs_best_static": None,
    }
    document = {
        "arms": {"live": {"mixture": figures}},
        "cells": {"mixture": {"workload": "mixture"}},
        "calibration_cost_vs_sweep": 0.04,
        "prediction": {"round_cost": {"in_force": {"after_200": None}}},
    }
    found = goals(document)
    assert [goal["met"] for goal in found] == [False, True, None, True, None]
    assert found[2]["bound"] == 1.10
