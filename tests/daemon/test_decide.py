"""When a setting is changed, and when it is not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config.schema import RetuneSection
from autospec.daemon.retuning.decide import (
    HOUR,
    LIVE,
    PATIENCE,
    PLAIN,
    ZERO,
    Decision,
    Leaning,
    Option,
    Price,
    Rate,
    Standing,
    decide,
    lean,
    live_change,
)
from autospec.tuning.stopping import Policy

RULES = RetuneSection(min_gain=0.05, max_restarts_per_hour=2)
NOW = 10_000.0
FLAGS = "flags n_max 8, n_min 0, p_min 0.5"


def standing(present: float = 10.0, other: float = 13.0, **changes: object) -> Standing:
    """Plain decoding in force, flags as the alternative, better by 30 % for ten minutes."""
    options = (
        Option(PLAIN, Rate(present), "in force", plain=True),
        Option(FLAGS, Rate(other), "restart"),
    )
    known = Standing(
        now=NOW,
        options=options,
        price=Price(reload=20.0, caches=10.0),
        leaning=Leaning(FLAGS, NOW - 600.0),
        idle=True,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def drafting(speed: float, plain: float, **changes: object) -> Standing:
    """Flags in force at `speed`, plain decoding as the alternative."""
    options = (
        Option(FLAGS, Rate(speed, measured=True), "in force"),
        Option(PLAIN, Rate(plain), "restart", plain=True),
    )
    return standing(options=options, leaning=None, **changes)


def test_a_lasting_gain_that_pays_for_the_restart_is_taken_and_the_sum_is_kept() -> None:
    decision = decide(standing(), RULES)
    assert decision.action == "restart now"
    assert decision.option == FLAGS
    assert decision.arithmetic is not None
    assert decision.arithmetic.gain_tokens == pytest.approx(3.0 * 600)
    assert decision.arithmetic.price_tokens == pytest.approx(30.0 * 10)
    assert "1800 tokens" in decision.reason
    assert "costs 300" in decision.reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"other": 10.4}, "less than 5% to gain"),
        ({"other": 9.0}, "still the best"),
        ({"leaning": None}, "does not pay yet"),
        ({"leaning": Leaning(FLAGS, NOW - 90.0)}, "does not pay yet"),
        ({"leaning": Leaning(ZERO, NOW - 600.0)}, "does not pay yet"),
        ({"restarts": (NOW - 10, NOW - 20)}, "2 restarts of this hour are used"),
        ({"restarts": (NOW - 10,)}, "kept for the way back"),
    ],
)
def test_what_does_not_pay_or_is_not_allowed_is_left_alone(
    changes: dict[str, object], words: str
) -> None:
    decision = decide(standing(**changes), RULES)
    assert (decision.action, decision.option) == ("keep", PLAIN)
    assert words in decision.reason


def test_a_gain_within_the_doubt_of_both_figures_is_none() -> None:
    options = (
        Option(PLAIN, Rate(10.0, 0.5), "in force", plain=True),
        Option(FLAGS, Rate(13.0, 2.0), "restart"),
    )
    decision = decide(standing(options=options), RULES)
    assert decision.action == "keep"
    assert "not clear of the doubt" in decision.reason


def test_doubt_that_both_figures_share_is_no_doubt_in_their_difference() -> None:
    options = (
        Option(FLAGS, Rate(10.0, worse=8.0, better=12.0), "in force"),
        Option("flags n_max 4, n_min 0, p_min 0", Rate(13.0, worse=11.0, better=15.0), "restart"),
    )
    leaning = Leaning(options[1].name, NOW - 600)
    assert decide(standing(options=options, leaning=leaning), RULES).action == "restart now"
    turned = replace(options[1], rate=Rate(13.0, worse=7.5, better=15.0))
    assert decide(standing(options=(options[0], turned)), RULES).action == "keep"


def test_restarts_an_hour_ago_are_forgotten() -> None:
    old = (NOW - HOUR - 1, NOW - HOUR - 2)
    assert decide(standing(restarts=old), RULES).action == "restart now"


def test_a_single_restart_an_hour_may_be_spent_on_a_gain() -> None:
    one = RULES.model_copy(update={"max_restarts_per_hour": 1})
    assert decide(standing(), one).action == "restart now"
    none = RULES.model_copy(update={"max_restarts_per_hour": 0})
    assert decide(standing(), none).action == "keep"


def test_an_idle_moment_is_waited_for_but_not_for_ever() -> None:
    waiting = decide(standing(idle=False), RULES)
    assert waiting.action == "restart when idle"
    since = NOW - PATIENCE
    assert decide(standing(idle=False, wanted=since), RULES).action == "restart now"
    assert decide(standing(idle=False, wanted=since + 1), RULES).action == "restart when idle"


def test_a_server_that_is_seldom_at_work_has_less_to_gain() -> None:
    assert decide(standing(working=0.01), RULES).action == "restart now"
    shorter = Leaning(FLAGS, NOW - 101.0)
    assert decide(standing(leaning=shorter), RULES).action == "restart now"
    side = Price(reload=1000.0, side_by_side=True)
    assert decide(standing(price=side), RULES).action == "restart now"
    assert decide(standing(price=replace(side, side_by_side=False)), RULES).action == "keep"


def test_plain_decoding_by_prediction_waits_until_it_pays_too() -> None:
    assert decide(drafting(10.0, 13.0), RULES).action == "keep"
    lasted = replace(drafting(10.0, 13.0), leaning=Leaning(PLAIN, NOW - 600))
    assert decide(lasted, RULES).action == "restart without a draft"


def test_what_measures_slower_than_plain_is_left_at_once() -> None:
    decision = decide(drafting(9.0, 10.0, slower=True, idle=False), RULES)
    assert decision.action == "restart without a draft"
    assert decision.option == PLAIN
    one_left = drafting(9.0, 10.0, slower=True, restarts=(NOW - 5,))
    assert decide(one_left, RULES).action == "restart without a draft"


def test_the_way_back_leads_to_what_was_faster_than_plain_before() -> None:
    known = drafting(9.0, 10.0, slower=True, previous="flags n_max 4, n_min 0, p_min 0")
    before = Option("flags n_max 4, n_min 0, p_min 0", Rate(12.0), "restart")
    both = replace(known, options=(*known.options, before))
    assert decide(both, RULES).action == "back to previous"
    worse = replace(known, options=(*known.options, replace(before, rate=Rate(9.5))))
    assert decide(worse, RULES).action == "restart without a draft"


def test_with_no_restart_left_a_steered_child_stops_drafting() -> None:
    options = (
        Option(LIVE, Rate(9.0), "in force"),
        Option(PLAIN, Rate(12.0), "restart", plain=True),
        Option(ZERO, Rate(10.0), "live"),
    )
    spent = standing(options=options, slower=True, restarts=(NOW - 1, NOW - 2))
    decision = decide(spent, RULES)
    assert decision.action == "live k = 0"
    assert "used" in decision.reason


def test_pinned_speculation_has_no_way_back_and_says_so() -> None:
    pinned = standing(options=(Option(FLAGS, Rate(9.0), "in force"),), slower=True)
    decision = decide(pinned, RULES)
    assert decision.action == "keep"
    assert "what you pinned" in decision.reason


def test_a_live_change_needs_neither_price_nor_patience() -> None:
    options = (
        Option(FLAGS, Rate(10.0), "in force"),
        Option("flags n_max 4, n_min 0, p_min 0", Rate(11.0), "live"),
        Option(PLAIN, Rate(9.0), "restart", plain=True),
    )
    known = standing(options=options, leaning=None, idle=False, restarts=(NOW, NOW))
    assert decide(known, RULES).action == "change live"
    small = (options[0], replace(options[1], rate=Rate(10.1)), options[2])
    assert decide(replace(known, options=small), RULES).action == "keep"


def test_leaning_begins_anew_when_another_option_is_better_or_none_is() -> None:
    first = lean(None, standing(), RULES)
    assert first == Leaning(FLAGS, NOW)
    assert lean(first, standing(now=NOW + 60), RULES) == first
    assert lean(first, standing(other=10.0, now=NOW + 60), RULES) is None
    other = Option("another", Rate(20.0), "restart")
    known = replace(standing(now=NOW + 60), options=(*standing().options, other))
    assert lean(first, known, RULES) == Leaning("another", NOW + 60)


def policy(drafted: float) -> Policy:
    return Policy((0.5,) * 4, 12.0, 10.0, 9.0, drafted, drafted, 1.0 + drafted / 2)


def test_live_thresholds_are_told_of_when_drafts_change_clearly() -> None:
    first = live_change(None, policy(2.0), "here")
    assert first is not None
    assert first.action == "change live"
    assert live_change(policy(2.0), policy(2.2), "here") is None
    longer = live_change(policy(2.0), policy(4.0), "with 1 busy slot at depth 7")
    assert longer is not None
    assert (longer.action, longer.option) == ("change live", LIVE)
    assert "in place of 2.0 with 1 busy slot at depth 7" in longer.reason
    none = live_change(policy(2.0), policy(0.0), "here")
    assert none is not None
    assert (none.action, none.option) == ("live k = 0", ZERO)
    assert live_change(policy(0.0), policy(0.1), "here") is not None
    assert live_change(policy(0.0), policy(0.0), "here") is None


rates = st.floats(0.0, 100.0)
looks = st.lists(
    st.tuples(
        st.floats(1.0, 4000.0),  # seconds until this look
        rates,
        rates,
        rates,
        st.booleans(),  # measured slower than plain
        st.booleans(),  # idle
    ),
    min_size=1,
    max_size=80,
)


@given(looks, st.integers(0, 4), st.floats(0.0, 300.0))
def test_no_hour_ever_sees_more_restarts_than_its_budget(
    seen: list[tuple[float, float, float, float, bool, bool]], budget: int, price: float
) -> None:
    rules = RetuneSection(max_restarts_per_hour=budget)
    now, present = 0.0, PLAIN
    restarts: list[float] = []
    leaning: Leaning | None = None
    wanted: float | None = None
    for seconds, plain, short, long, slower, idle in seen:
        now += seconds
        rated = {PLAIN: plain, "short": short, "long": long}
        known = Standing(
            now=now,
            options=[
                Option(
                    name, Rate(rate), "in force" if name == present else "restart", name == PLAIN
                )
                for name, rate in rated.items()
            ],
            price=Price(price),
            leaning=leaning,
            idle=idle,
            slower=slower,
            wanted=wanted,
            restarts=tuple(restarts),
        )
        leaning = lean(leaning, known, rules)
        decision: Decision = decide(replace(known, leaning=leaning), rules)
        wanted = (wanted or now) if decision.action == "restart when idle" else None
        if decision.restarts:
            assert decision.option != present
            restarts.append(now)
            present, leaning = decision.option, None
    for at in restarts:
        assert sum(at - HOUR < other <= at for other in restarts) <= budget


def test_noise_restarts_nothing() -> None:
    """Two settings that are equally fast, each figure of which scatters by 3 % at every look: four
    hours of looks every five seconds, ten times, without one restart."""
    chance = random.Random(5)
    for _ in range(10):
        leaning = None
        for look in range(0, 4 * 3600, 5):
            options = (
                Option(PLAIN, Rate(10.0 * chance.gauss(1.0, 0.03), 0.3), "in force", plain=True),
                Option(FLAGS, Rate(10.0 * chance.gauss(1.0, 0.03), 0.3), "restart"),
            )
            known = Standing(float(look), options, Price(3.0), leaning, idle=True)
            leaning = lean(leaning, known, RULES)
            decision = decide(replace(known, leaning=leaning), RULES)
            assert not decision.restarts
