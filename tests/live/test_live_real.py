"""The library inside the real llama-server: what it does to drafts, and to nothing else."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from live_rounds import DRAFT, WARM_UP, K, follows, random_policy
from live_server import PROMPTS, Asked, asked

from autospec.engine.find import Engine
from autospec.engine.launch import Speculation
from autospec.engine.live.applier import LiveSession, live_speculation, verdict
from autospec.engine.live.memory import Reason, State
from autospec.engine.live.policy import LivePolicy, at_most
from autospec.engine.live.telemetry import LiveRound

pytestmark = [pytest.mark.real, pytest.mark.live]

TIE = 0.15
"""Two tokens whose log probabilities differ by less may change places with the size of a batch."""


def test_thresholds_bite_and_the_target_alone_decides(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession
) -> None:
    random = np.random.default_rng(11)
    prompts = PROMPTS[:4]
    written: dict[int, LivePolicy] = {}
    answers = []
    with asked(engine, pair, live_speculation(DRAFT), session=session) as live:
        live.answer(prompts[0], WARM_UP)
        session.rounds()
        for prompt in prompts:
            policy = random_policy(random)
            written[session.put(policy)] = policy
            answers.append(live.answer(prompt))
        rounds = session.rounds()
        assert session.status().state is State.LIVE
    assert all(r.obeyed for r in rounds)
    assert len({r.round.drafted for r in rounds}) > 2
    for seen in rounds:
        assert follows(written[seen.policy], seen), seen
    # Empty drafts never reach the engine's counters, so the sums need not leave them out.
    assert sum(r.round.drafted for r in rounds) == sum(a.drafted for a in answers)
    assert sum(r.round.accepted for r in rounds) == sum(a.accepted for a in answers)
    with asked(engine, pair, Speculation()) as plain:
        for prompt, answer in zip(prompts, answers, strict=True):
            _same_choices(plain, prompt, answer.tokens)


def _same_choices(plain: Asked, prompt: str, tokens: tuple[int, ...]) -> None:
    """Each token is what the target alone would choose, but for near-ties of batch sizes."""
    alone = plain.answer(prompt, len(tokens)).tokens
    if alone == tokens:
        return
    split = next(i for i, (a, b) in enumerate(zip(alone, tokens, strict=False)) if a != b)
    shown = plain.answer(prompt, split + 1, n_probs=2).body["completion_probabilities"][split]
    best, second = shown["top_logprobs"]
    assert tokens[split] in (best["id"], second["id"])
    assert best["logprob"] - second["logprob"] < TIE


@pytest.mark.parametrize("sole", [False, True])
def test_at_equal_lengths_it_is_the_stock_engine(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession, sole: bool
) -> None:
    limit = 3
    stock_flags = Speculation(("draft-simple",), n_max=limit, n_min=0, p_min=0.0)
    with asked(engine, pair, stock_flags) as stock:
        expected = [stock.answer(prompt) for prompt in PROMPTS]
        pieces = stock.streamed(PROMPTS[0])
    with asked(engine, pair, live_speculation(DRAFT), session=session) as live:
        live.answer(PROMPTS[0], WARM_UP)
        session.put(replace(at_most(limit, K), sole=sole))
        given = [live.answer(prompt) for prompt in PROMPTS]
        assert live.streamed(PROMPTS[0]) == pieces
        assert any(r.cut for r in session.rounds()) is not sole
    for one, other in zip(expected, given, strict=True):
        assert one.tokens == other.tokens
        assert (one.drafted, one.accepted) == (other.drafted, other.accepted)


def test_a_handshake_proves_it_and_unproves_it(live: Asked, session: LiveSession) -> None:
    number = session.put(at_most(1, K))
    live.answer(PROMPTS[0], 32)
    seen = [r for r in session.rounds() if r.obeyed and r.policy == number]
    assert verdict(session.status(), seen, 1) is None
    assert verdict(session.status(), [], 1) == "no draft of the probe came to a threshold"
    assert "do not end drafts" in str(verdict(session.status(), seen, 0))


def test_a_hostile_writer_under_load_disturbs_nobody(live: Asked, session: LiveSession) -> None:
    live.answer(PROMPTS[0], WARM_UP)
    session.rounds()
    random = np.random.default_rng(3)
    written: dict[int, LivePolicy] = {}
    rounds: list[LiveRound] = []
    over = threading.Event()

    def rewrite() -> None:
        while not over.is_set():
            policy = random_policy(random)
            # Kept before it is put in force, as a round may be quicker than we are.
            written[session._number + 1] = policy
            session.put(policy)
            over.wait(0.002)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for prompt in PROMPTS[:3]:
            assert len(live.answer(prompt, 32).tokens) == 32
            rounds += session.rounds()
    finally:
        over.set()
        writer.join()
    assert len(written) > 300
    assert len({r.policy for r in rounds}) > len(rounds) / 2
    for seen in rounds:
        assert follows(written[seen.policy], seen), seen
    status = session.status()
    assert (status.state, status.contended) == (State.LIVE, 0)


def test_four_slots_are_told_apart_and_counted_as_the_engine_counts(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession
) -> None:
    random = np.random.default_rng(5)
    prompts = [PROMPTS[0], PROMPTS[1] * 3, PROMPTS[2] * 6, PROMPTS[3] * 9]
    with asked(engine, pair, live_speculation(DRAFT), session=session, slots=4) as live:
        live.answer(PROMPTS[0], WARM_UP)
        session.rounds()
        before = live.counters()
        policy = random_policy(random)
        session.put(policy)
        answers = {}

        def ask(slot: int) -> None:
            answers[slot] = live.answer(prompts[slot], 24, id_slot=slot)

        threads = [threading.Thread(target=ask, args=(slot,)) for slot in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = live.counters()
        rounds = session.rounds()
        status = session.status()
    assert (status.state, status.reason, status.contended) == (State.LIVE, Reason.NONE, 0)
    assert max(r.busy for r in rounds) > 1
    for slot, answer in answers.items():
        own = [r for r in rounds if r.slot == slot]
        assert sum(r.round.drafted for r in own) == answer.drafted
        assert sum(r.round.accepted for r in own) == answer.accepted
        for earlier, later in itertools.pairwise(own):
            assert later.depth == earlier.depth + earlier.round.accepted + 1
        for seen in own:
            assert follows(policy, seen), seen
    assert session.lost == 0
    drafts = [r for r in rounds if r.round.drafted]
    assert after.drafts - before.drafts == len(drafts)
    assert after.drafted - before.drafted == sum(r.round.drafted for r in drafts)
    assert after.accepted - before.accepted == sum(r.round.accepted for r in drafts)


def test_a_damaged_header_leaves_a_serving_engine(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession
) -> None:
    with asked(engine, pair, live_speculation(DRAFT), session=session) as live:
        session.put(at_most(0, K))
        live.answer(PROMPTS[0], WARM_UP)
        session._policy._file["magic"] = 0
        answer = live.answer(PROMPTS[0], 24)
        assert answer.drafted > 0
        assert session.status().reason is Reason.BAD_HEADER


def test_programs_that_are_no_such_engine_run_as_ever(engine: Engine, session: LiveSession) -> None:
    """`true` has none of the functions; the benchmark has them and never drafts."""
    programs = [["/bin/true"]] + ([[str(engine.bench), "--help"]] if engine.bench else [])
    for program in programs:
        done = subprocess.run(
            program,
            env=session.environment(os.environ),
            pass_fds=session.descriptors,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        expected = Reason.MISSING_SYMBOL if program == ["/bin/true"] else Reason.NONE
        assert session.status().reason is expected
