"""The requests of ours are many, mixed, and learning never sees evaluation."""

from __future__ import annotations

from collections import Counter

from autospec.calibration.prompts import prompts

KINDS = {"code", "prose", "extraction", "repetition", "translation", "question"}
BOTH = [*prompts("learning"), *prompts("evaluation")]


def test_there_are_many_and_none_twice():
    texts = {" ".join(prompt.text.lower().split()) for prompt in BOTH}
    assert len(texts) == len(BOTH) >= 48


def test_sets_share_no_opening():
    openings = Counter(prompt.text[:40] for prompt in BOTH)
    assert max(openings.values()) == 1


def test_each_kind_is_in_both_sets_and_early():
    assert {prompt.kind for prompt in prompts("learning")[: len(KINDS)]} == KINDS
    assert {prompt.kind for prompt in prompts("evaluation")[: len(KINDS)]} == KINDS


def test_lengths_are_those_of_real_requests():
    words = [len(prompt.text.split()) for prompt in BOTH]
    assert min(words) >= 20
    assert max(words) <= 120
