from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autospec.daemon.watch import NOTHING, Watch, add
from autospec.engine.metrics import ServerCounters
from autospec.engine.observe import SlotState
from autospec.tuning.observations import Counters


def reading(
    predicted: int, *, drafts: int = 0, per_position: tuple[int, ...] = (), seconds: float = 1.0
) -> ServerCounters:
    return ServerCounters(
        predicted=predicted,
        predicted_seconds=seconds,
        drafts=drafts,
        drafted=4 * drafts,
        accepted=sum(per_position),
        per_position=per_position,
    )


def slot(*, depth: int | None = 0, processing: bool = True) -> SlotState:
    return SlotState(0, 512, speculative=True, processing=processing, depth=depth)


def test_the_first_reading_is_only_where_counting_starts() -> None:
    watch = Watch()
    watch.counters(reading(1000, drafts=300, per_position=(200, 100)), now=1.0)
    assert watch.total == NOTHING
    assert watch.began is None
    watch.counters(reading(1010, drafts=303, per_position=(202, 101), seconds=1.5), now=2.0)
    assert watch.total == Counters(3, 12, 3, (2, 1), 10, 0.5)
    assert watch.began == 2.0


def test_a_counter_that_went_down_is_another_server_and_counted_anew() -> None:
    watch = Watch()
    watch.counters(reading(100), 1.0)
    watch.counters(reading(150), 2.0)
    watch.counters(reading(20), 3.0)
    watch.counters(reading(25), 4.0)
    assert watch.total.predicted == 50 + 5


def test_a_server_that_zeroes_its_counters_at_each_look_adds_nothing_wrong() -> None:
    watch = Watch()
    for now in range(10):
        watch.counters(reading(7), float(now))
    assert watch.total == NOTHING


def test_positions_that_come_later_count_as_none_accepted_before() -> None:
    watch = Watch()
    watch.counters(reading(0), 1.0)
    watch.counters(reading(10, drafts=3, per_position=(2,)), 2.0)
    watch.counters(reading(20, drafts=6, per_position=(4, 1, 1)), 3.0)
    assert watch.total.per_position == (4, 1, 1)


def test_readings_without_new_tokens_are_no_traffic() -> None:
    watch = Watch()
    for now in range(5):
        watch.counters(reading(100), float(now))
    assert watch.began is None
    assert watch.rate(5.0) is None
    assert watch.mean_rate is None


def test_idle_is_believed_after_a_few_quiet_readings_only() -> None:
    watch = Watch()
    for expected in (False, False, True, True):
        watch.slots([slot(processing=False)], 1.0)
        assert watch.idle is expected
    watch.slots([slot()], 2.0)
    assert not watch.idle
    assert watch.busy_now == 1


def test_depth_and_load_are_means_over_the_readings_at_work() -> None:
    watch = Watch()
    assert watch.depth is None
    assert watch.busy is None
    watch.slots([slot(depth=100), slot(depth=300)], 1.0)
    watch.slots([slot(processing=False)], 2.0)
    watch.slots([slot(depth=500), slot(processing=False)], 3.0)
    assert watch.depth == (200 + 500) / 2
    assert watch.busy == 1.5


def test_a_build_that_tells_no_depth_counts_as_empty() -> None:
    watch = Watch()
    watch.slots([slot(depth=None)], 1.0)
    assert watch.depth == 0.0


def test_traffic_begins_with_the_first_sign_even_at_the_clocks_zero() -> None:
    watch = Watch()
    watch.slots([slot()], 0.0)
    watch.slots([slot()], 9.0)
    assert watch.began == 0.0


def test_the_rate_is_that_of_the_last_minute() -> None:
    watch = Watch()
    watch.counters(reading(0, seconds=0.0), 0.0)
    watch.counters(reading(100, seconds=10.0), 10.0)
    assert watch.rate(10.0) == 10.0
    watch.counters(reading(140, seconds=11.0), 80.0)
    assert watch.rate(80.0) == 40.0
    assert watch.mean_rate == 140 / 11
    assert watch.rate(200.0) is None


counts = st.integers(0, 10**9)
spans = st.builds(
    Counters,
    counts,
    counts,
    counts,
    st.lists(counts, max_size=6).map(tuple),
    counts,
    st.floats(0, 1e6),
)


@given(spans, spans)
def test_adding_keeps_every_position_and_every_count(one: Counters, other: Counters) -> None:
    both = add(one, other)
    assert both == add(other, one)
    assert len(both.per_position) == max(len(one.per_position), len(other.per_position))
    assert sum(both.per_position) == sum(one.per_position) + sum(other.per_position)
    assert both.predicted == one.predicted + other.predicted
    assert add(one, NOTHING) == one


def test_traffic_of_a_build_that_counts_no_drafts_has_a_rate_and_no_acceptance():
    watch = Watch()
    for predicted, seconds in ((0, 0.0), (60, 2.0), (120, 4.0)):
        seen = ServerCounters(predicted=predicted, predicted_seconds=seconds)
        watch.counters(seen, now=seconds)
    assert watch.mean_rate == 30.0
    assert watch.total.predicted == 120
    assert not watch.total.tells_drafts
