"""The library against a fake engine: what it cuts, when it stands aside, what it survives."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from native_live import Stage

from autospec.engine.live.memory import POLICY, Reason, State
from autospec.engine.live.policy import LivePolicy, at_most, constant
from autospec.engine.live.telemetry import LiveRound

pytestmark = pytest.mark.live

FAULTS = {
    1: Reason.STRANGE_CANDIDATES,  # not sorted
    2: Reason.STRANGE_CANDIDATES,  # not a number
    3: Reason.STRANGE_CANDIDATES,  # summing to more than 1
    4: Reason.STRANGE_CANDIDATES,  # an id below 0
    5: Reason.STRANGE_CANDIDATES,  # none
    6: Reason.STRANGE_CANDIDATES,  # nowhere in memory
    7: Reason.STRANGE_PARAMS,  # the draft is nowhere in memory
    8: Reason.STRANGE_PARAMS,  # a last token below 0
    9: Reason.CUT_IGNORED,  # no p_min
    10: Reason.OUT_OF_STEP,  # samplers change slots
    11: Reason.STRANGE_SAMPLER,
    12: Reason.OUT_OF_STEP,  # other tokens drafted than considered
    13: Reason.STRANGE_ACCEPTANCE,
}
FOREIGN_DRAFT = 14
ROUNDS = 60


def a_policy(seed: int = 5) -> LivePolicy:
    """Thresholds that differ by load, depth and position, and a bent map."""
    random = np.random.default_rng(seed)
    return LivePolicy(
        thresholds=np.sort(random.uniform(0.05, 0.6, (4, 3, 8)))[:, :, ::-1],
        level=np.array([0.1, 0.4, 0.7, 0.9, 0.99]),
        acceptance=np.sort(random.uniform(0.2, 1.0, (8, 5))),
        depth_from=(0.0, 40.0, 90.0),
    )


def demanded(policy: LivePolicy, seen: LiveRound) -> int:
    """How many tokens the policy keeps, given what was reported."""
    reported = seen.round.p if seen.round.cut_p is None else (*seen.round.p, seen.round.cut_p)
    return policy.kept(reported, busy=seen.busy, depth=seen.depth)


@pytest.mark.parametrize("slots", [1, 3, 6])
def test_every_draft_ends_where_the_policy_demands(stage: Stage, slots: int) -> None:
    policy = a_policy()
    stage.policy.write(policy.record(7))
    played = stage.run("play", ROUNDS, slots, 8, 0)
    rounds = stage.reader.take()
    assert stage.ring.status().state is State.LIVE
    obeyed = [r for r in rounds if r.obeyed]
    assert [r for r in rounds if not r.obeyed] == rounds[:slots]
    assert {r.round.drafted for r in obeyed} > {0, 1, 2}
    assert {r.policy for r in rounds} == {7}
    for seen in obeyed:
        assert seen.round.drafted == demanded(policy, seen), seen
        assert seen.cut == (seen.round.drafted < 8)
    reported = {(r.slot, r.round.drafted) for r in rounds}
    assert reported == set(played.drafted)
    assert {r.busy for r in rounds} == {slots}
    assert {r.slot for r in rounds} == set(range(slots))


def test_depth_follows_what_was_accepted(stage: Stage) -> None:
    stage.policy.write(at_most(3, 8).record(1))
    stage.run("play", ROUNDS, 2, 8, 0)
    rounds = stage.reader.take()
    for slot in (0, 1):
        own = [r for r in rounds if r.slot == slot]
        assert own[0].depth == 10 * (slot + 1)
        for before, after in itertools.pairwise(own):
            assert after.depth == before.depth + before.round.accepted + 1


def test_nothing_is_cut_before_a_policy_is_given(stage: Stage) -> None:
    played = stage.run("play", ROUNDS, 2, 8, 0)
    assert {drafted for _, drafted in played.drafted} == {8}
    assert not any(r.obeyed for r in stage.reader.take())


def test_a_policy_that_is_only_to_be_observed_cuts_nothing(stage: Stage) -> None:
    stage.policy.write(at_most(0, 8).record(1, in_force=False))
    played = stage.run("play", ROUNDS, 1, 8, 0)
    assert {drafted for _, drafted in played.drafted} == {8}


@pytest.mark.parametrize("sole", [False, True])
def test_never_drafts_nothing_with_or_without_the_first_step(stage: Stage, sole: bool) -> None:
    policy = replace(at_most(0, 8), sole=sole)
    stage.policy.write(policy.record(1))
    played = stage.run("play", ROUNDS, 2, 8, 0)
    assert {drafted for _, drafted in played.drafted[2:]} == {0}
    obeyed = [r for r in stage.reader.take() if r.obeyed]
    # The last round of each slot had no successor that could end it.
    assert len(obeyed) == 2 * (ROUNDS - 2)
    assert {r.skipped for r in obeyed} == {sole}
    assert {r.round.cut_p is None for r in obeyed} == {sole}
    assert {r.round.accepted for r in obeyed} == {0}


@pytest.mark.parametrize("sole", [False, True])
def test_a_limit_is_told_beforehand_where_a_model_drafts_alone(stage: Stage, sole: bool) -> None:
    stage.policy.write(replace(at_most(3, 8), sole=sole).record(1))
    played = stage.run("play", ROUNDS, 2, 8, 0)
    assert {drafted for _, drafted in played.drafted[2:]} == {3}
    obeyed = [r for r in stage.reader.take() if r.obeyed]
    # A cut is seen by the probability of the token that was left out.
    assert {r.cut for r in obeyed} == {not sole}
    assert {r.round.cut_p is None for r in obeyed} == {sole}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.items(), ids=str)
def test_an_engine_that_is_not_as_known_is_left_alone(
    sanitized: Stage, fault: int, reason: Reason
) -> None:
    sanitized.policy.write(constant([0.9] * 8).record(1))
    played = sanitized.run("play", 30, 2, 8, fault)
    status = sanitized.ring.status()
    assert (status.state, status.reason) == (State.INERT, reason)
    assert {drafted for _, drafted in played.drafted[-20:]} == {8}


def test_drafts_without_candidates_are_left_alone_and_counted(stage: Stage) -> None:
    stage.policy.write(at_most(0, 8).record(1))
    played = stage.run("play", 10, 2, 8, FOREIGN_DRAFT)
    assert {drafted for _, drafted in played.drafted} == {1}
    assert stage.ring.status().state is State.WAITING
    assert stage.reader.take() == []
    assert stage.reader.foreign == 20


def test_more_slots_or_longer_drafts_than_it_can_follow_make_it_inert(stage: Stage) -> None:
    stage.run("play", 3, 65, 4, 0)
    assert stage.ring.status().reason is Reason.TOO_MANY


def test_a_draft_longer_than_its_table_makes_it_inert(stage: Stage) -> None:
    played = stage.run("play", 3, 1, 70, 0)
    assert stage.ring.status().reason is Reason.TOO_MANY
    assert {drafted for _, drafted in played.drafted} == {70}


@pytest.mark.parametrize("field", ["magic", "version", "size"])
def test_a_damaged_header_makes_it_inert(sanitized: Stage, field: str) -> None:
    sanitized.policy.write(at_most(0, 8).record(1))
    sanitized.policy._file[field] += 1
    played = sanitized.run("play", 10, 2, 8, 0)
    assert sanitized.ring.status().reason is Reason.BAD_HEADER
    assert {drafted for _, drafted in played.drafted} == {8}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("positions", 65),
        ("levels", 0),
        ("levels", 65),
        ("busy", 0),
        ("busy", 17),
        ("depths", 9),
        ("depth_from", 3.0),
        ("level", np.nan),
        ("acceptance", 1.5),
        ("threshold", np.nan),
        ("threshold", -1.0),
    ],
)
def test_a_whole_policy_that_makes_no_sense_makes_it_inert(
    sanitized: Stage, field: str, value: float
) -> None:
    record = at_most(2, 8).record(1)
    if POLICY[field].shape:
        record[field][(0,) * record[field].ndim] = value
    else:
        record[field] = value
    sanitized.policy.write(record)
    sanitized.run("play", 10, 2, 8, 0)
    assert sanitized.ring.status().reason is Reason.BAD_POLICY


@pytest.mark.parametrize("damage", ["checksum", "sequence"])
def test_a_half_written_policy_is_not_taken(stage: Stage, damage: str) -> None:
    stage.policy.write(at_most(0, 8).record(1))
    stage.policy._file[damage] += 1
    played = stage.run("play", 10, 1, 8, 0)
    status = stage.ring.status()
    assert status.state is State.LIVE
    assert status.torn > 0
    assert {drafted for _, drafted in played.drafted} == {8}


@pytest.mark.parametrize("at_least_plain", [False, True])
def test_a_silent_daemon_leaves_only_a_proven_policy_in_force(
    stage: Stage, at_least_plain: bool
) -> None:
    policy = replace(at_most(1, 8), at_least_plain=at_least_plain)
    stage.policy.write(policy.record(1))
    stage.policy._file["heartbeat_ns"] = max(0, time.monotonic_ns() - 61 * 10**9)
    played = stage.run("play", 10, 1, 8, 0)
    assert {drafted for _, drafted in played.drafted[1:]} == {1 if at_least_plain else 8}
    assert (stage.ring.status().stale > 0) is not at_least_plain


def test_a_preloaded_library_takes_out_itself_only(stage: Stage) -> None:
    own = stage.driver.parent / "liblive.so"
    other = stage.driver.parent / "libfake.so"
    played = stage.run("play", 1, 1, 2, 0, environment={"LD_PRELOAD": f"{own}:{other}"})
    assert played.environment == f"preload={other} files="
    played = stage.run("play", 1, 1, 2, 0, environment={"LD_PRELOAD": str(own)})
    assert played.environment == "preload= files="


@pytest.mark.parametrize("files", ["", "9", "1,2", "3,x", "99999,3", "-1,-1", "3,4,5", "3, 4 "])
def test_descriptors_that_are_none_of_ours_leave_it_inert(stage: Stage, files: str) -> None:
    stage.policy.write(at_most(0, 8).record(1))
    played = stage.run("play", 5, 1, 4, 0, environment={"AUTOSPEC_LIVE": files})
    assert {drafted for _, drafted in played.drafted} == {4}
    assert stage.ring.status().state is State.ABSENT


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scribbling_over_the_shared_memory_harms_nothing(sanitized: Stage, seed: int) -> None:
    sanitized.policy.write(a_policy(seed).record(1))
    seconds = 0.005 * settings().max_examples
    assert sanitized.fuzz(seconds, seed) > 0
    sanitized.ring.status()
    sanitized.reader.take()


def test_overwritten_rounds_are_counted_as_lost(stage: Stage) -> None:
    stage.run("play", 1500, 1, 2, 0)
    rounds = stage.reader.take()
    assert len(rounds) == 1024
    assert stage.reader.lost == 1500 - 1024
    assert stage.reader.take() == []


def test_a_drafted_token_costs_little_beside_sampling_it(stage: Stage) -> None:
    stage.policy.write(constant([0.0] * 16).record(1))
    hooked, own = map(float, stage.run("bench", 40_000).lines[0].split())
    # A fake token is made by 20 draws of a random number, about 50 ns.
    assert hooked < 10 * own
