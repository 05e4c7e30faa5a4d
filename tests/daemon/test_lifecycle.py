from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from autospec.daemon.lifecycle import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_DEATHS,
    WINDOW,
    Life,
    Phase,
    after_death,
)
from autospec.engine.failures import ExitCause

CRASH = ExitCause("crash", "the engine crashed (SIGSEGV)", retry=True)
BAD_FLAG = ExitCause("bad_flag", "the engine refused its command line", retry=False)


def test_a_crash_is_followed_by_a_pause_and_another_try() -> None:
    life = after_death(Life(Phase.READY), CRASH, now=100.0, jitter=0.0)
    assert life.phase is Phase.BACKING_OFF
    assert life.retry_at == 100.0 + FIRST_PAUSE
    assert "SIGSEGV" in life.reason


def test_a_cause_that_would_repeat_itself_is_final_at_once() -> None:
    life = after_death(Life(Phase.LOADING), BAD_FLAG, now=100.0, jitter=0.0)
    assert life.phase is Phase.FAILED
    assert life.retry_at is None
    assert "would not help" in life.reason


def test_a_crash_loop_ends_with_its_count_and_last_cause() -> None:
    life = Life(Phase.READY)
    for death in range(MOST_DEATHS + 1):
        life = after_death(life, CRASH, now=100.0 + death, jitter=0.0)
    assert life.phase is Phase.FAILED
    assert str(MOST_DEATHS + 1) in life.reason
    assert "SIGSEGV" in life.reason


def test_deaths_far_apart_never_end_it() -> None:
    life = Life(Phase.READY)
    for death in range(20):
        life = after_death(life, CRASH, now=death * (WINDOW + 1), jitter=0.0)
    assert life.phase is Phase.BACKING_OFF
    assert len(life.deaths) == 1


@given(st.lists(st.floats(0, 120), max_size=12), st.floats(0, 0.999))
def test_pauses_grow_within_bounds(gaps: list[float], jitter: float) -> None:
    life, now, pauses = Life(Phase.READY), 0.0, []
    for gap in gaps:
        now += gap
        life = after_death(life, CRASH, now, jitter)
        if life.phase is Phase.FAILED:
            break
        assert life.retry_at is not None
        pauses.append((len(life.deaths), life.retry_at - now))
    assert all(0 < pause <= LONGEST_PAUSE * 1.25 for _, pause in pauses)
    assert all(b[1] >= a[1] - 1e-6 for a, b in pairwise(pauses) if b[0] >= a[0])
