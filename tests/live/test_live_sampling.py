"""Every kind of drafting on the real engine: sampled drafts and texts, backends, n-gram types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_rounds import DRAFT, WARM_UP, K, follows, random_policy
from live_server import PROMPTS, Asked, asked
from scipy.stats import chisquare

from autospec.engine.find import Engine
from autospec.engine.launch import Speculation
from autospec.engine.live.applier import LiveSession, live_speculation
from autospec.engine.live.memory import State
from autospec.engine.live.policy import at_most, constant
from autospec.engine.live.telemetry import LiveRound

pytestmark = [pytest.mark.real, pytest.mark.live]


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


def test_rounds_without_a_draft_do_not_lose_the_state_of_the_draft(
    live: Asked, session: LiveSession
) -> None:
    """Half a text is drafted nothing of; the second half must find the draft as it always is."""
    live.answer(PROMPTS[0], WARM_UP)
    begin = 20
    always = at_most(3, K)
    thresholds = np.concatenate([np.full((1, 1, K), np.inf), always.thresholds], axis=1)
    late = replace(always, thresholds=thresholds, depth_from=(0.0, float(begin)), sole=True)
    told: dict[bool, dict[int, LiveRound]] = {}
    for skipping, policy in ((False, always), (True, late)):
        session.rounds()
        session.put(policy)
        live.answer(PROMPTS[0], 40)
        told[skipping] = {r.depth: r for r in session.rounds()}
    assert {r.skipped for depth, r in told[True].items() if depth < begin} == {True}
    shared = [depth for depth in told[True] if depth >= begin and depth in told[False]]
    assert len(shared) > 2
    for depth in shared:
        found = told[True][depth].round.p[:1]
        assert found == pytest.approx(told[False][depth].round.p[:1], abs=0.05)


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
    prompt, length, samples = PROMPTS[0], 3, 180
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
