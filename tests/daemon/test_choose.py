"""What is chosen, and what the user's pins do to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig
from autospec.daemon.choose import USUAL_DEPTH, Model, choose, cost_of
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.setting import Basis
from autospec.engine.launch import Speculation
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Counters, Round

DRAFTED = 8
PAIR = {"path": "target.gguf", "draft": "draft.gguf"}


def calibration(accepted: int, *, slope: float = 1.0) -> Calibration:
    """A target whose batch of b takes 40 + slope·b ms, a draft at 2 ms, rounds alike."""
    batches = range(1, DRAFTED + 2)
    rounds = [Round(tuple([0.8] * DRAFTED), accepted, 16.0, 40 + slope * (DRAFTED + 1))] * 100
    return Calibration(
        key="k",
        model="m",
        made_at=0.0,
        seconds=1.0,
        engine_version="1",
        max_draft=DRAFTED,
        target=tuple(StepTime(b, 0, 40 + slope * b, 0.1, 5) for b in batches),
        draft=tuple(StepTime(b, 0, 2.0, 0.01, 5) for b in batches),
        rounds=tuple(rounds),
    )


def model(known: Calibration | None, **config: Any) -> Model:
    return Model(ModelConfig(**(PAIR | config)), 4096, known)


def test_a_good_draft_is_used_and_the_sentence_says_by_how_much() -> None:
    setting = choose(model(calibration(accepted=8)))
    assert setting.speculation.on
    assert setting.speculation.n_max >= 6
    assert setting.plan is not None
    assert setting.plan.rate > 2 * setting.plan.plain_rate
    assert setting.sources["n_max"] == "auto"
    assert "x" in setting.reason


def test_a_draft_that_is_never_right_is_off() -> None:
    setting = choose(model(calibration(accepted=0, slope=10.0)))
    assert not setting.speculation.on
    assert setting.sources["type"] == "off"
    assert setting.plan is not None


def test_off_in_the_configuration_is_pinned() -> None:
    setting = choose(model(calibration(accepted=8), type="off"))
    assert not setting.speculation.on
    assert setting.sources["type"] == "pinned"
    assert "off" in setting.reason


def test_without_a_draft_there_is_nothing_to_choose() -> None:
    setting = choose(model(None, draft=None))
    assert not setting.speculation.on
    assert "no draft" in setting.reason


def test_nothing_measured_is_plain_unless_a_number_is_pinned() -> None:
    assert not choose(model(None)).speculation.on
    pinned = choose(model(None, n_max=5, p_min=0.3))
    assert (pinned.speculation.n_max, pinned.speculation.p_min) == (5, 0.3)
    assert pinned.sources == {"type": "auto", "n_max": "pinned", "n_min": "auto", "p_min": "pinned"}


@pytest.mark.parametrize("pin", [{"n_max": 3}, {"n_min": 2}, {"p_min": 0.5}, {"n_max": 20}])
def test_a_pin_is_kept_and_said(pin: dict[str, float]) -> None:
    ((name, value),) = pin.items()
    setting = choose(model(calibration(accepted=8), **pin))
    assert setting.speculation.on
    assert getattr(setting.speculation, name) == value
    assert setting.sources[name] == "pinned"
    assert list(setting.sources.values()).count("pinned") == 1


def test_a_pin_is_set_beside_what_would_be_chosen_without_it() -> None:
    known = calibration(accepted=8)
    free, short = choose(model(known)), choose(model(known, n_max=1))
    assert free.unpinned is None
    assert short.unpinned is not None
    assert short.unpinned.speculation == free.speculation
    assert short.plan is not None
    assert free.plan is not None
    assert short.unpinned.rate == pytest.approx(free.plan.rate)
    assert short.unpinned.loss == pytest.approx(1 - short.plan.rate / free.plan.rate)
    assert short.unpinned.loss > 0.2


def test_what_plain_decoding_by_the_users_wish_costs_is_known_once_the_draft_was_measured() -> None:
    known = calibration(accepted=8)
    off = choose(model(known, type="off"))
    assert not off.speculation.on
    assert off.unpinned is not None
    assert off.unpinned.speculation.on
    assert off.unpinned.loss is not None
    assert off.unpinned.loss > 0.5
    assert choose(model(None, type="off")).unpinned is None


def test_what_another_type_costs_is_not_guessed() -> None:
    setting = choose(model(calibration(accepted=8), type=["ngram-mod"]))
    assert setting.unpinned is not None
    assert setting.unpinned.loss is None


def test_where_a_pin_forces_a_bad_draft_plain_decoding_is_what_would_be_chosen() -> None:
    known = calibration(accepted=0, slope=10.0)
    setting = choose(model(known, type=["draft-simple"], n_max=4))
    assert setting.speculation.on
    assert setting.unpinned is not None
    assert not setting.unpinned.speculation.on
    assert setting.unpinned.loss is not None
    assert setting.unpinned.loss > 0


def test_the_type_that_was_measured_can_be_pinned_on() -> None:
    hopeless = calibration(accepted=0, slope=10.0)
    setting = choose(model(hopeless, type="draft-simple"))
    assert setting.speculation.types == ("draft-simple",)
    assert setting.sources["type"] == "pinned"


def test_another_type_runs_as_the_user_says() -> None:
    setting = choose(model(None, draft=None, type="ngram-mod", n_max=12))
    assert setting.speculation.types == ("ngram-mod",)
    assert setting.speculation.n_max == 12
    assert "not tuned" in setting.reason


@pytest.mark.parametrize(
    ("context", "slots", "depth"), [(65536, 1, USUAL_DEPTH), (2048, 1, 512), (2048, 4, 128)]
)
def test_before_any_traffic_the_depth_is_a_guess_within_the_context(
    context: int, slots: int, depth: float
) -> None:
    config = ModelConfig(**PAIR, slots=slots)
    assert Model(config, context, None).basis == Basis(depth=depth)


def test_what_traffic_taught_is_what_is_chosen_for() -> None:
    taught = model(calibration(accepted=8, slope=10.0))
    basis = Basis(300.0, 1, 500)
    counted = Counters(500, 4000, 0, (0,) * DRAFTED, 500, 500 * 0.14)
    knowledge = Knowledge.of(calibration(accepted=8, slope=10.0), DRAFTED)
    knowledge = knowledge.after_span(counted, basis, Speculation(("draft-simple",), DRAFTED))
    before = choose(taught)
    after = choose(replace(taught, taught=knowledge, traffic=basis))
    assert before.speculation.on
    assert not after.speculation.on or after.speculation.n_max < before.speculation.n_max
    assert after.basis == basis


def test_a_pin_longer_than_what_was_measured_has_a_cost_too() -> None:
    assert cost_of(model(calibration(8), n_max=20)).n_max == 20


def test_a_steered_child_has_room_for_the_longest_draft_that_was_measured() -> None:
    lazy = replace(model(calibration(accepted=2)), live=True)
    setting = choose(lazy)
    assert setting.live
    assert setting.speculation == Speculation(("draft-simple",), DRAFTED)
    assert choose(replace(lazy, live=False)).speculation.n_max < DRAFTED
    pinned = replace(model(calibration(accepted=2), n_max=5), live=True)
    assert choose(pinned).speculation.n_max == 5
