import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.metrics import ServerCounters, difference, parse_metrics
from autospec.errors import EngineOutputError
from autospec.tuning.observations import Counters

PAGE = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 37
llamacpp:prompt_seconds_total 0.336021
llamacpp:tokens_predicted_total 196
llamacpp:tokens_predicted_seconds_total 28.0687
llamacpp:n_decode_total 108
llamacpp:n_tokens_max 162
llamacpp:spec_decode_num_draft_tokens_total 415
llamacpp:spec_decode_num_accepted_tokens_total 88
llamacpp:spec_decode_num_drafts_total 105
llamacpp:predicted_tokens_seconds 6.91161
llamacpp:requests_processing 1
llamacpp:n_busy_slots_per_decode nan
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 49
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 20
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 13
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="3"} 6
"""

COUNTERS = ServerCounters(
    predicted=196,
    predicted_seconds=28.0687,
    prompt_tokens=37,
    prompt_seconds=0.336021,
    decodes=108,
    drafts=105,
    drafted=415,
    accepted=88,
    per_position=(49, 20, 13, 6),
    busy=1,
)

START = ServerCounters(predicted=0, predicted_seconds=0.0, drafts=0, drafted=0, accepted=0)


def test_reads_a_page_of_a_real_build():
    assert parse_metrics(PAGE) == COUNTERS


def test_series_that_a_build_lacks_are_unknown():
    assert parse_metrics("") == ServerCounters()
    assert parse_metrics("llamacpp:tokens_predicted_total 5\n") == ServerCounters(predicted=5)


def test_reads_exponents_labels_timestamps_and_foreign_line_ends():
    page = (
        "llamacpp:tokens_predicted_total 1.5e+06 1796039548000\r\n"
        'llamacpp:n_decode_total{model="a b"}\t7 \n'
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{model="m",position="0"} 3\n'
        'other:tokens_predicted_total{position="9"} NaN\n'
    )
    counters = parse_metrics(page)
    assert (counters.predicted, counters.decodes, counters.per_position) == (1_500_000, 7, (3,))


def test_a_series_said_twice_alike_is_no_fault():
    assert parse_metrics("llamacpp:n_decode_total 7\n" * 2).decodes == 7


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("llamacpp:tokens_predicted_total 19", "middle of a line"),
        ("llamacpp:tokens_predicted_total\n", "cannot be read"),
        ("llamacpp:tokens_predicted_total 1 2 3\n", "cannot be read"),
        ("llamacpp:tokens_predicted_total{ 1\n", "cannot be read"),
        ("llamacpp:tokens_predicted_total many\n", "is no number"),
        ("llamacpp:tokens_predicted_total NaN\n", "cannot be"),
        ("llamacpp:tokens_predicted_seconds_total -nan\n", "cannot be"),
        ("llamacpp:tokens_predicted_seconds_total +Inf\n", "cannot be"),
        ("llamacpp:tokens_predicted_total -1\n", "cannot be"),
        ("llamacpp:tokens_predicted_total 1e300\n", "cannot be"),
        ("llamacpp:tokens_predicted_total 1.5\n", "not whole"),
        ("llamacpp:n_decode_total 1\nllamacpp:n_decode_total 2\n", "twice"),
        ("llamacpp:spec_decode_num_accepted_tokens_per_pos_total 1\n", "no real position"),
        (
            'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="9999"} 1\n',
            "no real position",
        ),
        (
            'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 1\n',
            r"positions \[1\] only",
        ),
        ("x" * 10_000_000, "10000000 characters"),
        ("llamacpp:" + "{" * 1_000_000 + "\n", "cannot be read"),
    ],
)
def test_refuses_what_it_cannot_trust_and_shows_it(line, says):
    with pytest.raises(EngineOutputError, match=says) as caught:
        parse_metrics(line)
    assert len(str(caught.value)) < 600
    assert caught.value.hint


def test_the_difference_of_two_scrapes_is_what_happened_between_them():
    assert difference(START, COUNTERS) == Counters(
        drafts=105,
        drafted=415,
        accepted=88,
        per_position=(49, 20, 13, 6),
        predicted=196,
        predicted_seconds=28.0687,
    )
    assert difference(COUNTERS, COUNTERS) == Counters(0, 0, 0, (0, 0, 0, 0))


@pytest.mark.parametrize(
    "changes",
    [
        {"predicted": 195},
        {"predicted_seconds": 1.0},
        {"drafts": 0},
        {"drafted": 414},
        {"accepted": 87},
        {"per_position": (49, 20, 13, 5)},
        {"per_position": (49,)},
        {"per_position": ()},
    ],
)
def test_a_counter_that_went_down_is_a_restart_and_no_negative_rate(changes):
    later = ServerCounters(**{**vars(COUNTERS), **changes})
    assert difference(COUNTERS, later) is None


@pytest.mark.parametrize("name", ["drafts", "drafted", "accepted", "predicted"])
def test_a_series_that_comes_or_goes_makes_no_difference(name):
    without = ServerCounters(**{**vars(COUNTERS), name: None})
    assert difference(without, COUNTERS) is None
    assert difference(COUNTERS, without) is None


def test_another_scraper_changes_nothing():
    # Its scrape resets the gauges of averages; the counters go on.
    reset = PAGE.replace("seconds 6.91161", "seconds 0").replace("decode nan", "decode 0")
    assert difference(parse_metrics(PAGE), parse_metrics(reset)) == Counters(0, 0, 0, (0, 0, 0, 0))


def test_more_accepted_than_drafted_is_refused():
    assert difference(START, ServerCounters(**{**vars(COUNTERS), "accepted": 416})) is None


@given(st.text())
def test_any_text_gives_counters_or_a_clean_refusal(text):
    counters_or_refusal(text)


@given(st.data())
def test_a_changed_page_gives_counters_or_a_clean_refusal(data):
    page = list(PAGE)
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(page) - 1))
        page[place] = data.draw(st.sampled_from(' \n-+.eE{}",=09naN#\x00"'))
    counters_or_refusal("".join(page))


def counters_or_refusal(page: str) -> None:
    try:
        counters = parse_metrics(page)
    except EngineOutputError:
        return
    numbers = [value for value in vars(counters).values() if isinstance(value, int | float)]
    assert all(0 <= number < float("inf") for number in [*numbers, *counters.per_position])


def test_a_build_that_counts_no_drafts_tells_tokens_and_says_so():
    before = ServerCounters(predicted=10, predicted_seconds=1.0)
    after = ServerCounters(predicted=40, predicted_seconds=2.5)
    assert difference(before, after) == Counters(0, 0, 0, (), 30, 1.5, tells_drafts=False)
    assert difference(before, COUNTERS) is None
    assert difference(after, before) is None
