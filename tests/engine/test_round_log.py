from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.round_log import RoundReader, clock_ms
from autospec.tuning.observations import Round

HEAD = "D slot"
ROUND = [
    f"0.01.239.430 {HEAD} get_n_draft_: id  0 | task 0 | max possible draft: 58",
    "0.01.248.119 D spec        draft:  - seq_id 0, draft candidate   0, pos   0:   1517 (   0.748) ' f'",
    "0.01.248.149 D spec        draft:  - seq_id 0, draft candidate   1, pos   0:   1398 (   0.174) ' l'",
    "0.01.256.075 D spec        draft:  - seq_id 0, draft candidate   0, pos   1:    868 (   0.958) ' s'",
    f"0.01.304.430 {HEAD} handle_last_: id  0 | task 0 | generate_draft: id=378, #tokens=11, #draft=2, pos_next=11",
    f"0.01.484.430 {HEAD}   operator(): id  0 | task 0 | add accepted tokens: sampled=354, ids.size=2, n_draft=2",
]


def read(lines: list[str]) -> RoundReader:
    reader = RoundReader()
    for line in lines:
        reader.take(line)
    return reader


def test_a_round_is_read_with_its_probabilities_acceptance_and_times() -> None:
    reader = read(ROUND)
    (one,) = reader.rounds
    assert (one.p, one.accepted) == ((0.748, 0.958), 1)
    assert one.draft_ms is not None
    assert one.verify_ms is not None
    assert (round(one.draft_ms, 3), round(one.verify_ms, 3)) == (65.0, 180.0)
    assert reader.dropped == 0


def test_a_round_that_lost_a_line_is_dropped_and_counted() -> None:
    for lost in (1, 3, 4):
        reader = read(ROUND[:lost] + ROUND[lost + 1 :] + ROUND)
        if lost == 4:
            assert reader.rounds[0] == Round((0.748, 0.958), 1)
        else:
            assert reader.dropped == 1
        assert reader.rounds[-1].p == (0.748, 0.958)


def test_times_are_left_out_where_the_clock_is_missing() -> None:
    (one,) = read([line.split(" ", 1)[1] for line in ROUND]).rounds
    assert one == Round((0.748, 0.958), 1)


def test_a_token_that_looks_like_a_log_line_does_not_invent_a_round() -> None:
    line = ROUND[1].replace("' f'", "' add accepted tokens: ids.size=9'")
    assert read([ROUND[0], line, *ROUND[2:]]).rounds == read(ROUND).rounds


def test_the_clock_counts_minutes_seconds_milliseconds_and_microseconds() -> None:
    assert clock_ms("2.03.004.005 I srv") == 123_004.005
    assert clock_ms("no clock") is None


@given(st.lists(st.sampled_from(ROUND) | st.text(max_size=80), max_size=40))
def test_whatever_the_log_says_rounds_make_sense(lines: list[str]) -> None:
    for one in read(lines).rounds:
        assert 0 <= one.accepted <= one.drafted
        assert all(0 <= p <= 1 for p in one.p)
        assert one.draft_ms is None or one.draft_ms >= 0


def test_numbers_that_are_none_drop_their_round_and_nothing_else() -> None:
    for wrong in ("0.7.48", "9" * 5000, ".", "nan"):
        broken = [line.replace("0.748", wrong) for line in ROUND]
        reader = read([*broken, *ROUND])
        assert len(reader.rounds) == 1
        assert reader.dropped == 1
    reader = read([line.replace("n_draft=2", "n_draft=" + "2" * 5000) for line in ROUND])
    assert reader.rounds == []
