from __future__ import annotations

from dataclasses import replace

import pytest

from autospec.config.schema import RetuneSection
from autospec.daemon.retune import AGAIN_SECONDS, ENOUGH_ROUNDS, Observed, decide, due
from autospec.daemon.setting import Setting, plain
from autospec.engine.launch import Speculation
from autospec.tuning.cost import simple_cost
from autospec.tuning.plan import Plan, make_plan
from autospec.tuning.survival import SurvivalModel

SETTINGS = RetuneSection(after=60.0, min_gain=0.05, max_restarts_per_hour=2)
NOW = 10_000.0
OBSERVED = Observed(
    now=NOW,
    traffic_since=NOW - 61,
    rounds=ENOUGH_ROUNDS,
    idle=True,
    asked=None,
    restarts=(),
)
PLAN = make_plan(simple_cost([10.0, 11.0, 12.0, 13.0, 14.0], 1.0), SurvivalModel.from_rounds((), 4))


def setting(n_max: int, rate: float) -> Setting:
    plan: Plan = replace(PLAN, rate=rate)
    return Setting(Speculation(("draft-simple",), n_max), "why", {}, plan)


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, True),
        ({"traffic_since": None}, False),
        ({"traffic_since": NOW - 59}, False),
        ({"rounds": ENOUGH_ROUNDS - 1}, False),
        ({"asked": NOW - AGAIN_SECONDS + 1}, False),
        ({"asked": NOW - AGAIN_SECONDS}, True),
        ({"idle": False}, True),
    ],
)
def test_when_to_think_again(changes: dict[str, object], answer: bool) -> None:
    assert due(replace(OBSERVED, **changes), SETTINGS, speculating=True) is answer


def test_plain_decoding_has_no_rounds_to_wait_for() -> None:
    assert due(replace(OBSERVED, rounds=0), SETTINGS, speculating=False)


def test_switched_off_is_never_due() -> None:
    off = SETTINGS.model_copy(update={"enabled": False})
    assert not due(OBSERVED, off, speculating=True)


@pytest.mark.parametrize(
    ("changes", "better", "action", "words"),
    [
        ({}, 12.0, "restart", "12.0 tokens/s predicted against 10.0 now"),
        ({}, 10.5, "restart", "10.5"),
        ({}, 10.4, "keep", "less than 5%"),
        ({}, 9.0, "keep", "less than 5%"),
        ({"idle": False}, 12.0, "wait", "as soon as no request runs"),
        ({"restarts": (NOW - 10, NOW - 20)}, 12.0, "keep", "2 restarts of this hour are used"),
        ({"restarts": (NOW - 10, NOW - 3601)}, 12.0, "restart", "12.0"),
        ({"restarts": (NOW - 10, NOW - 20), "idle": False}, 12.0, "keep", "are used"),
    ],
)
def test_decisions(changes: dict[str, object], better: float, action: str, words: str) -> None:
    current, candidate = setting(2, rate=99.0), setting(6, better)
    decision = decide(current, candidate, 10.0, replace(OBSERVED, **changes), SETTINGS)
    assert decision.action == action
    assert words in decision.reason
    assert (decision.rate, decision.better) == (10.0, better)


def test_the_same_flags_are_never_a_reason_to_restart() -> None:
    decision = decide(setting(2, 10.0), setting(2, 99.0), 10.0, OBSERVED, SETTINGS)
    assert decision.action == "keep"


def test_without_a_prediction_nothing_is_gained() -> None:
    decision = decide(setting(2, 10.0), plain("nothing is known"), 10.0, OBSERVED, SETTINGS)
    assert decision.action == "keep"


def test_no_restart_at_all_is_allowed_to_be_the_budget() -> None:
    none = SETTINGS.model_copy(update={"max_restarts_per_hour": 0})
    decision = decide(setting(2, 10.0), setting(6, 20.0), 10.0, OBSERVED, none)
    assert decision.action == "keep"
