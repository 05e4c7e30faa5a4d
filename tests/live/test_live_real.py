"""The library inside the real llama-server: what it does to drafts, and that it does nothing else.

The target is the small original model and the draft the same with a block dropped, so that drafts
are often wrong and a run takes seconds.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from live_server import PROMPTS, Asked, asked
from scipy.stats import chisquare

from autospec.engine.find import Engine
from autospec.engine.launch import Speculation
from autospec.engine.live.applier import LiveSession, live_speculation, verdict
from autospec.engine.live.memory import Reason, State
from autospec.engine.live.policy import LivePolicy, at_most, constant
from autospec.engine.live.telemetry import LiveRound

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels

pytestmark = [pytest.mark.real, pytest.mark.live]

K = 8
TIE = 0.15
"""Two tokens whose log probabilities differ by less may change places with the size of a batch."""

WARM_UP = 12
DRAFT = Speculation(("draft-simple",), n_max=K, n_min=0, p_min=0.0)


@pytest.fixture
def pair(models: DemoModels) -> tuple[Path, Path]:
    return models.draft, models.draft_one_dropped


@pytest.fixture
def session() -> Iterator[LiveSession]:
    session = LiveSession.open()
    yield session
    session.close()


@pytest.fixture
def live(engine: Engine, pair: tuple[Path, Path], session: LiveSession) -> Iterator[Asked]:
    with asked(engine, pair, live_speculation(DRAFT), session=session) as server:
        yield server


def random_policy(random: np.random.Generator) -> LivePolicy:
    """Anything from eager to shy, differing by depth and position, with a bent map."""
    eagerness = random.uniform(0.0, 0.7)
    return LivePolicy(
        thresholds=random.uniform(0.0, eagerness, (4, 2, K)),
        level=np.array([0.05, 0.3, 0.6, 0.9]),
        acceptance=np.sort(random.uniform(0.1, 1.0, (K, 4))),
        depth_from=(0.0, 20.0),
    )


def close_call(policy: LivePolicy, seen: LiveRound) -> bool:
    """Whether float and double may disagree about the last token that was looked at."""
    reported = _reported(seen)
    row = policy.thresholds[min(seen.busy, len(policy.thresholds)) - 1]
    bucket = int(np.searchsorted(policy.depth_from, seen.depth, side="right")) - 1
    q = [np.interp(p, policy.level, policy.acceptance[i]) for i, p in enumerate(reported)]
    return bool(np.any(np.abs(np.cumprod(q) - row[bucket, : len(q)]) < 1e-5))


def _reported(seen: LiveRound) -> tuple[float, ...]:
    return seen.round.p if seen.round.cut_p is None else (*seen.round.p, seen.round.cut_p)


def follows(policy: LivePolicy, seen: LiveRound) -> bool:
    """Whether a round ended where `policy` demands, given what the draft reported."""
    demanded = policy.kept(_reported(seen), busy=seen.busy, depth=seen.depth)
    return demanded == seen.round.drafted or close_call(policy, seen)


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


def test_at_equal_lengths_it_is_the_stock_engine(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession
) -> None:
    limit = 3
    stock_flags = Speculation(("draft-simple",), n_max=limit, n_min=0, p_min=0.0)
    with asked(engine, pair, stock_flags) as stock:
        expected = [stock.answer(prompt) for prompt in PROMPTS]
        pieces = stock.streamed(PROMPTS[0])
    with asked(engine, pair, live_speculation(DRAFT), session=session) as live:
        live.answer(PROMPTS[0], WARM_UP)
        session.put(at_most(limit, K))
        given = [live.answer(prompt) for prompt in PROMPTS]
        assert live.streamed(PROMPTS[0]) == pieces
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


@pytest.mark.parametrize("sampling", ["greedy", "probabilistic"])
@pytest.mark.parametrize("backend", ["--backend-sampling", "--no-spec-draft-backend-sampling"])
def test_every_way_of_sampling_is_followed(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession, sampling: str, backend: str
) -> None:
    extra = ("--spec-draft-sampling", sampling, backend)
    policy = random_policy(np.random.default_rng(8))
    speculation = live_speculation(DRAFT)
    with asked(engine, pair, speculation, session=session, extra=extra) as live:
        live.answer(PROMPTS[0], WARM_UP, temperature=1.0)
        session.rounds()
        session.put(policy)
        answer = live.answer(PROMPTS[1], 24, temperature=1.0, seed=4)
        rounds = session.rounds()
    assert session.status().state is State.LIVE
    assert sum(r.round.drafted for r in rounds) == answer.drafted
    for seen in rounds:
        assert follows(policy, seen), seen


REPEATING = "The cat sat. The dog sat. " * 12
NGRAM = ("--spec-ngram-map-k-size-n", "3")


def test_n_gram_drafts_are_left_alone(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession
) -> None:
    session.put(at_most(0, K))
    speculation = Speculation(("ngram-map-k",), n_max=4, n_min=1, p_min=0.0)
    with asked(engine, pair, speculation, extra=NGRAM) as stock:
        expected = stock.answer(REPEATING, 48)
    with asked(engine, pair, speculation, session=session, extra=NGRAM) as live:
        given = live.answer(REPEATING, 48)
    assert expected.drafted > 0
    assert given.tokens == expected.tokens
    assert (given.drafted, given.accepted) == (expected.drafted, expected.accepted)
    assert not any(r.round.drafted for r in session.rounds())
    assert session.foreign > 0
    assert session.status().state is State.WAITING


def test_a_draft_model_beside_n_grams_is_steered_alone(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession
) -> None:
    types = ("ngram-map-k", "draft-simple")
    wanted = live_speculation(Speculation(types, n_max=4))
    with asked(engine, pair, wanted, session=session, extra=NGRAM) as live:
        live.answer(PROMPTS[3], WARM_UP)
        session.rounds()
        session.put(at_most(2, 4))
        live.answer(REPEATING, 48)
        rounds = session.rounds()
    assert session.status().state is State.LIVE
    assert session.foreign > 0
    assert {r.round.drafted for r in rounds} <= {0, 1, 2}
    assert any(r.cut and r.round.drafted == 2 for r in rounds)


def test_sampled_text_keeps_the_distribution_of_the_target(
    engine: Engine, pair: tuple[Path, Path], session: LiveSession
) -> None:
    """Drafts are sampled too; two candidates a token, so that all texts can be listed."""
    prompt, length, samples = PROMPTS[0], 3, 300
    sampling = {
        "temperature": 1.0,
        "top_k": 2,
        "top_p": 1.0,
        "min_p": 0.0,
        "samplers": ["top_k", "temperature"],
    }
    thresholds = np.array([0.5, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2])
    counts: dict[bool, Counter[tuple[int, ...]]] = {}
    extra = ("--spec-draft-sampling", "probabilistic")
    with asked(engine, pair, live_speculation(DRAFT), session=session, extra=extra) as live:
        live.answer(prompt, WARM_UP)
        for in_force in (False, True):
            session.put(constant(thresholds), in_force=in_force)
            session.rounds()
            texts = (
                live.answer(prompt, length + 2, seed=seed, cache_prompt=True, **sampling).tokens
                for seed in range(samples)
            )
            counts[in_force] = Counter(text[:length] for text in texts)
            rounds = session.rounds()
            assert {r.obeyed for r in rounds} == {in_force}
            assert any(r.cut for r in rounds) is in_force
            assert any(r.round.drafted and not r.round.accepted for r in rounds)
    with asked(engine, pair, Speculation()) as plain:
        start = plain.answer(prompt, 1).body["prompt"]
        tokens = plain.tokenize(start)
        expected = _texts(plain, tokens, length, sampling)
    for counted in counts.values():
        assert set(counted) <= set(expected)
        seen, wanted = _pooled(counted, {text: samples * p for text, p in expected.items()})
        assert chisquare(seen, wanted).pvalue > 1e-4


def _texts(
    plain: Asked, prompt: list[int], length: int, sampling: Mapping[str, Any]
) -> dict[tuple[int, ...], float]:
    """Every text of so many tokens and its probability under the target."""
    if length == 0:
        return {(): 1.0}
    asked_for = {**sampling, "n_probs": 2, "post_sampling_probs": True}
    shown = plain.answer(prompt, 1, **asked_for).body["completion_probabilities"][0]["top_probs"]
    return {
        (choice["id"], *rest): choice["prob"] * p
        for choice in shown
        if choice["prob"] > 0
        for rest, p in _texts(plain, [*prompt, choice["id"]], length - 1, sampling).items()
    }


def _pooled(
    counted: Mapping[tuple[int, ...], int], expected: Mapping[tuple[int, ...], float]
) -> tuple[list[float], list[float]]:
    """Counts and expectations, with texts expected less than five times taken together."""
    common = [text for text, n in expected.items() if n >= 5]
    total = sum(counted.values())
    seen = [float(counted.get(text, 0)) for text in common]
    wanted = [expected[text] for text in common]
    return [*seen, total - sum(seen)], [*wanted, max(total - sum(wanted), 1e-9)]


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
