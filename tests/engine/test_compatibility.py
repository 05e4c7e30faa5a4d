from pathlib import Path

import gguf_writer as w
import pytest

from autospec.engine.compatibility import Problem, check_model, check_pair
from autospec.engine.gguf import GgufHeader, read_header


@pytest.fixture
def make(tmp_path: Path):
    def made(name: str, size: int = 128, **changes: object) -> GgufHeader:
        raw = w.gguf(w.pairs(**changes), data=size)
        return read_header(w.write(tmp_path / f"{name}.gguf", raw))

    return made


@pytest.fixture
def target(make) -> GgufHeader:
    return make("target", size=4096)


def only(problems: list[Problem]) -> tuple[str, str]:
    assert len(problems) == 1, problems
    return problems[0].severity, problems[0].sentence


def test_a_smaller_model_of_the_family_fits(make, target):
    assert check_pair(target, make("draft")) == []


def test_a_vocabulary_may_be_up_to_128_tokens_longer(make, target):
    longer = [*w.TOKENS, *(f"extra{i}" for i in range(128))]
    assert check_pair(target, make("draft", tokens=longer)) == []
    severity, sentence = only(check_pair(target, make("draft", tokens=[*longer, "more"])))
    assert severity == "error"
    assert "300 tokens" in sentence
    assert "429" in sentence


@pytest.mark.parametrize("surplus", [0, 1, 100, 128])
@pytest.mark.parametrize("place", [5, 150, 299])
def test_one_different_token_is_found_whatever_the_sizes(make, target, surplus, place):
    tokens = [*w.TOKENS, *(f"extra{i}" for i in range(surplus))]
    tokens[place] = "another"
    severity, sentence = only(check_pair(target, make("draft", tokens=tokens)))
    assert severity == "error"
    assert "different texts" in sentence


def test_the_first_five_tokens_may_differ(make, target):
    assert check_pair(target, make("draft", tokens=["a", "b", "c", "d", "e", *w.TOKENS[5:]])) == []


def test_very_small_vocabularies_compare(make):
    target = make("target", size=4096, tokens=w.TOKENS[:8])
    assert check_pair(target, make("draft", tokens=w.TOKENS[:7])) == []
    assert check_pair(target, make("draft", tokens=w.TOKENS[:3])) == []
    assert check_pair(target, make("draft", tokens=[*w.TOKENS[:5], "x", "token6"])) != []


def test_another_kind_of_vocabulary_is_an_error(make, target):
    severity, sentence = only(check_pair(target, make("draft", tokenizer__ggml__model="llama")))
    assert severity == "error"
    assert "BPE" in sentence
    assert "SPM" in sentence


def test_names_of_one_vocabulary_type_are_the_same(make, target):
    assert check_pair(target, make("draft", tokenizer__ggml__model="gemma4")) == []


def test_unknown_vocabularies_are_not_judged(make, target):
    draft = make("draft", tokenizer__ggml__model=None, tokenizer__ggml__tokens=None)
    assert check_pair(target, draft) == []


def test_a_token_that_only_one_adds_is_an_error(make, target):
    severity, sentence = only(
        check_pair(target, make("draft", tokenizer__ggml__add_bos_token=True))
    )
    assert severity == "error"
    assert "only the draft" in sentence
    assert check_pair(target, make("draft", tokenizer__ggml__add_bos_token=None)) == []


def test_ids_matter_only_for_tokens_that_are_added(make, target):
    other = {"tokenizer__ggml__bos_token_id": 4}
    assert check_pair(target, make("draft", **other)) == []
    adding = {"tokenizer__ggml__add_bos_token": True}
    both = check_pair(make("target", size=4096, **adding), make("draft", **adding, **other))
    assert only(both) == ("error", "the bos token is 1 in the target and 4 in the draft")


def test_a_draft_as_large_as_its_target_is_warned_of(make, target):
    severity, sentence = only(check_pair(target, make("draft", size=8192)))
    assert severity == "warning"
    assert "not smaller" in sentence


def test_the_target_as_its_own_draft_is_warned_of(make, target, tmp_path):
    (tmp_path / "link.gguf").symlink_to(target.path)
    for draft in (target, read_header(tmp_path / "link.gguf")):
        severity, sentence = only(check_pair(target, draft))
        assert severity == "warning"
        assert "target itself" in sentence


def test_heads_bring_their_own_vocabulary(make, target):
    head = make("head", general__architecture="eagle3", tokens=w.TOKENS[:100])
    assert check_pair(target, head) == []
    severities = {
        problem.severity
        for problem in check_pair(head, make("other", general__architecture="eagle3"))
    }
    assert "error" in severities


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"general__architecture": "nomic-bert"}, "made for embeddings"),
        ({"llama__attention__causal": False}, "made for embeddings"),
        ({"llama__pooling_type": 3}, "made for embeddings"),
        ({"general__type": "adapter"}, "'adapter'"),
        ({"general__type": "mmproj"}, "'mmproj'"),
    ],
)
def test_a_model_that_writes_no_text_is_an_error(make, changes, says):
    severity, sentence = only(check_model(make("model", **changes)))
    assert severity == "error"
    assert says in sentence


def test_a_file_without_weights_is_an_error(tmp_path):
    header = read_header(w.write(tmp_path / "vocabulary.gguf", w.gguf(w.pairs(), [])))
    severity, sentence = only(check_model(header))
    assert severity == "error"
    assert "no weights" in sentence


def test_a_context_beyond_the_training_is_warned_of_for_each_model(make, target):
    draft = make("draft", llama__context_length=2048)
    assert check_pair(target, draft, context=2048) == []
    assert len(check_pair(target, draft, context=4096)) == 1
    assert len(check_pair(target, draft, context=4097)) == 2


@pytest.mark.real
def test_the_demo_pairs_fit(models):
    target = read_header(models.target)
    for path in (models.draft, models.draft_one_dropped, models.draft_three_dropped):
        assert check_pair(target, read_header(path), context=4096) == []
