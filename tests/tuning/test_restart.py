"""Restarting without a draft and with one again: when it pays, without knowing the future."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.tuning.mixture import Mixture, Text
from autospec.tuning.restart import Loss, RestartPrice
from autospec.tuning.simulate import simulate

DATA = Path(__file__).parent.parent / "data"
CHEAP = RestartPrice(into_plain_s=1.0, into_draft_s=1.0, prefill_tokens_per_s=10_000.0)


def hard_text(tokens, restart):
    """One slot on the demo's machine, and a text of which the draft foresees next to nothing."""
    mixture = Mixture.from_json(json.loads((DATA / "mixture.json").read_text()))
    hard = replace(mixture.phases[0], text="hard", tokens=tokens, depth=(0.0, 0.0))
    texts = {"hard": Text(-4.0, 0.5, 0.3), **mixture.texts}
    return replace(mixture, texts=texts, phases=(hard,), restart=restart)


def test_a_restart_is_due_when_as_much_is_lost_as_it_costs():
    loss = Loss()
    for _ in range(9):
        loss = loss.after(10.0, rate=8.0, other=10.0)
        assert not loss.pays(20.0)
    assert loss.seconds == pytest.approx(18.0)
    assert loss.after(10.0, rate=8.0, other=10.0).pays(20.0 - 1e-9)


def test_nothing_is_saved_up_on_the_better_side():
    loss = Loss().after(1000.0, rate=12.0, other=10.0)
    assert loss == Loss()
    assert not loss.pays(0.0)


@given(
    st.lists(st.tuples(st.floats(0.01, 10.0), st.floats(0.2, 5.0)), min_size=1, max_size=200),
    st.floats(0.1, 20.0),
)
def test_up_to_any_turn_no_more_is_lost_than_twice_what_foresight_would_lose(stretches, price):
    """One side is the worse from the start until things turn, at a time that nobody knows: who
    knew it would restart at once or never."""
    loss, spent, restarted = Loss(), 0.0, False
    for seconds, other in stretches:
        worse = 1.0 - 1.0 / (1.0 + other)
        if not restarted:
            loss = loss.after(seconds, rate=1.0, other=1.0 + other)
            spent += seconds * worse
            if loss.pays(price):
                restarted, spent = True, spent + price
    foreseen = min(price, sum(t * (1.0 - 1.0 / (1.0 + o)) for t, o in stretches))
    longest = max(seconds for seconds, _ in stretches)
    assert spent <= 2.0 * foreseen + longest + 1e-9


def test_the_price_counts_the_prompts_that_are_read_again():
    price = RestartPrice(into_plain_s=20.0, into_draft_s=25.0, prefill_tokens_per_s=500.0)
    assert price.seconds(plain=True, cached=0.0) == 20.0
    assert price.seconds(plain=False, cached=4000.0) == 33.0


@pytest.mark.parametrize("prices", [(-1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (1.0, float("nan"), 1.0)])
def test_a_price_that_cannot_be_is_refused(prices):
    with pytest.raises(ValueError, match="restart"):
        RestartPrice(*prices)


def test_where_plain_wins_for_long_the_draft_is_unloaded():
    """The draft's evaluation of every batch is saved from then on; the restart is paid once."""
    stays, leaves = (simulate(hard_text(1500, price)) for price in (None, CHEAP))
    assert (stays.restarts, leaves.restarts) == (0, 1)
    assert stays.tuned[0] < 0.95 * stays.plain[0]
    assert leaves.tuned[0] > 1.03 * stays.tuned[0]
    assert leaves.tuned[0] == pytest.approx(leaves.plain[0], rel=0.06)


def test_a_restart_that_is_too_dear_for_what_it_saves_is_not_made():
    dear = RestartPrice(into_plain_s=1e4, into_draft_s=1e4, prefill_tokens_per_s=500.0)
    stays, could = (simulate(hard_text(600, price)) for price in (None, dear))
    assert could.restarts == 0
    assert could.tuned == stays.tuned


def test_the_draft_is_loaded_again_when_the_load_asks_for_it():
    """Many slots write a text that is hard to foresee; then one is busy, with an easy one. While
    no draft is loaded the text is not seen: now and then that it is as usual again is tried."""
    mixture = Mixture.from_json(json.loads((DATA / "mixture_moe.json").read_text()))
    code, many = mixture.phases[0], mixture.phases[3]
    phases = tuple(
        replace(phase, text="code" if phase is code else "prose", tokens=tokens, depth=(1000, 1000))
        for phase, tokens in ((code, 600), (many, 6000), (code, 1500))
    )
    texts = {**mixture.texts, "prose": Text(-3.0, 0.5, 0.3)}
    result = simulate(replace(mixture, phases=phases, texts=texts, restart=CHEAP))
    assert 2 <= result.restarts <= 8
    assert result.restarts % 2 == 0, "loaded in the end"
    assert result.tuned[2] > 1.2 * result.plain[2]
    assert result.tuned[1] > 0.9 * result.plain[1]
