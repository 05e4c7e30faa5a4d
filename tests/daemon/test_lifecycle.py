from __future__ import annotations

from itertools import pairwise
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from autospec.daemon.lifecycle import Life, Pace, Phase, after_death, settled
from autospec.daemon.treatment import TREATMENTS, Treatment
from autospec.engine.failures import ExitCause, ExitKind

PACE = Pace()
CRASH = ExitCause("crash", "the engine crashed (SIGSEGV)")
KILLED = ExitCause("killed", "the engine was killed")
BAD_FLAG = ExitCause("bad_flag", "the engine refused its command line")


def die(life: Life, cause: ExitCause, now: float, jitter: float = 0.0) -> Life:
    return after_death(life, cause, TREATMENTS[cause.kind], now, jitter, PACE)


def tripped() -> Life:
    life = Life(Phase.READY)
    for death in range(PACE.most_deaths + 1):
        life = die(life, CRASH, 100.0 + death)
    return life


def test_a_crash_is_followed_by_a_pause_and_another_try() -> None:
    life = die(Life(Phase.READY), CRASH, now=100.0)
    assert life.phase is Phase.BACKING_OFF
    assert life.retry_at == 100.0 + PACE.first_pause
    assert "SIGSEGV" in life.reason


def test_a_child_that_served_and_was_killed_from_outside_is_followed_at_once() -> None:
    life = Life(Phase.READY)
    for kill in range(PACE.most_kills):
        life = die(life, KILLED, 100.0 + kill)
        assert (life.phase, life.retry_at) == (Phase.BACKING_OFF, 100.0 + kill)
        life = life.enter(Phase.READY, "back", 100.0 + kill)
    assert not life.deaths
    life = die(life, KILLED, 200.0)
    assert life.retry_at == 200.0 + PACE.first_pause


def test_a_kill_while_it_loads_is_a_death_like_any_other() -> None:
    life = die(Life(Phase.LOADING), KILLED, 100.0)
    assert life.retry_at == 100.0 + PACE.first_pause
    assert life.deaths == (100.0,)


def test_a_cause_that_would_repeat_itself_is_final_at_once() -> None:
    life = die(Life(Phase.LOADING), BAD_FLAG, now=100.0)
    assert life.phase is Phase.FAILED
    assert life.final
    assert "would not help" in life.reason


def test_a_crash_loop_opens_the_breaker_with_its_count_and_last_cause() -> None:
    life = tripped()
    assert life.phase is Phase.FAILED
    assert not life.final
    assert life.retry_at == life.since + PACE.cool_down
    assert str(PACE.most_deaths + 1) in life.reason
    assert "SIGSEGV" in life.reason


def test_after_the_cool_down_one_try_is_made_and_a_death_doubles_it() -> None:
    life = tripped()
    seen = []
    for _ in range(8):
        assert life.retry_at is not None
        now = life.retry_at + 1.0
        life = die(life.enter(Phase.LOADING, "half open", now), CRASH, now)
        assert life.phase is Phase.FAILED
        assert life.retry_at is not None
        seen.append(life.retry_at - now)
    assert seen[0] == 2 * PACE.cool_down
    assert all(b >= a for a, b in pairwise(seen))
    assert seen[-1] == PACE.longest_cool_down


def test_a_child_that_stays_closes_the_breaker() -> None:
    life = tripped().enter(Phase.READY, "half open", 1000.0)
    assert settled(life, 1000.0 + PACE.steady / 2, PACE) is life
    closed = settled(life, 1000.0 + PACE.steady, PACE)
    assert (closed.trips, closed.deaths) == (0, ())
    assert die(closed, CRASH, 2000.0).phase is Phase.BACKING_OFF


def test_deaths_far_apart_never_end_it() -> None:
    life = Life(Phase.READY)
    for death in range(20):
        life = die(life, CRASH, now=death * (PACE.window + 1))
    assert life.phase is Phase.BACKING_OFF
    assert len(life.deaths) == 1


@given(st.lists(st.floats(0, 120), max_size=12), st.floats(0, 0.999))
def test_pauses_grow_within_bounds(gaps: list[float], jitter: float) -> None:
    life, now, pauses = Life(Phase.READY), 0.0, []
    for gap in gaps:
        now += gap
        life = die(life, CRASH, now, jitter)
        if life.phase is Phase.FAILED:
            break
        assert life.retry_at is not None
        pauses.append((len(life.deaths), life.retry_at - now))
    assert all(0 < pause <= PACE.longest_pause * 1.25 for _, pause in pauses)
    assert all(b[1] >= a[1] - 1e-6 for a, b in pairwise(pauses) if b[0] >= a[0])


def test_every_cause_has_its_treatment() -> None:
    assert set(TREATMENTS) == set(get_args(ExitKind))
    final = {kind for kind, treatment in TREATMENTS.items() if treatment is Treatment.FINAL}
    assert {"bad_flag", "missing_model", "missing_library", "illegal_instruction"} <= final
    assert TREATMENTS["out_of_memory"] is Treatment.STEP_DOWN
    assert TREATMENTS["killed"] is Treatment.AT_ONCE
