"""Whether a draft fits its target, judged as the engine judges it, before anything is launched.

The engine does not refuse a draft that does not fit: it logs an error and serves without
speculation. So what it would log is found here first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autospec.engine.gguf_layout import FIRST_COMPARED_TOKEN, LARGEST_SIZE_DIFFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autospec.engine.gguf import GgufHeader

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """`error`: the engine will not speculate with this pair. `warning`: it will, to no good.

    `hint` is what to do.
    """

    severity: Severity
    sentence: str
    hint: str


_ANOTHER_DRAFT = "take a smaller model of the target's own family as draft, or leave `draft` out"


_NEVER_WRITES = frozenset(
    {"bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2"}
    | {"jina-bert-v3", "eurobert", "gemma-embedding", "llama-embed", "t5encoder"}
    | {"clip", "wavtokenizer-dec"}
)

# Heads that read the target's hidden states; they bring their own, smaller vocabulary.
_HEADS = frozenset({"eagle3", "dflash", "dspark", "gemma4-assistant"})

# `tokenizer.ggml.model` names of one and the same vocabulary type in the engine
_VOCABULARY_TYPE = {
    "llama": "SPM",
    "gpt2": "BPE",
    "gemma4": "BPE",
    "bert": "WPM",
    "t5": "UGM",
    "rwkv": "RWKV",
    "plamo2": "PLaMo-2",
    "no_vocab": "none",
}


def check_model(model: GgufHeader, *, context: int = 0) -> list[Problem]:
    """Say what keeps one model from being served with `context` tokens for each slot."""
    problems = []
    what = f"{model.path.name} ({model.architecture})"
    if model.kind not in {None, "model"}:
        problems.append(
            _error(
                f"{what} is of the kind {model.kind!r}, not a model",
                "name the model itself; adapters and projectors are arguments in `extra`",
            )
        )
    elif model.embeds or model.architecture in _NEVER_WRITES:
        problems.append(
            _error(
                f"{what} is made for embeddings and writes no text",
                "name a model that generates text",
            )
        )
    if model.tensor_count == 0:
        problems.append(
            _error(f"{what} holds a vocabulary and no weights", "name the file with the weights")
        )
    if model.context is not None and context > model.context:
        problems.append(
            _warning(
                f"{what} was trained for {model.context} tokens, {context} are asked for",
                "lower `context`",
            )
        )
    return problems


def check_pair(target: GgufHeader, draft: GgufHeader, *, context: int = 0) -> list[Problem]:
    """Say what stands between `draft` and `target`; an empty list means nothing does.

    `context` is what one slot is to hold, in tokens; 0 asks for nothing beyond the models'
    own. The vocabularies are compared as `draft-simple` does: same type, the same added bos
    and eos, sizes that differ by LARGEST_SIZE_DIFFERENCE at most, and the same text for every
    common token from FIRST_COMPARED_TOKEN on.
    """
    problems = [*check_model(target, context=context), *check_model(draft, context=context)]
    if target.path.resolve() == draft.path.resolve():
        problems.append(
            _warning("the draft is the target itself: drafting costs what it saves", _ANOTHER_DRAFT)
        )
        return problems
    if draft.size_bytes >= target.size_bytes:
        problems.append(
            _warning(
                f"the draft ({_size(draft)}) is not smaller than the target ({_size(target)})",
                _ANOTHER_DRAFT,
            )
        )
    if draft.architecture in _HEADS:
        problems.extend(_check_head(target, draft))
    else:
        problems.extend(_check_vocabulary(target, draft))
    return problems


def _check_head(target: GgufHeader, draft: GgufHeader) -> Iterator[Problem]:
    if target.architecture in _HEADS:
        yield _error(
            f"{target.path.name} is itself a draft head ({target.architecture}); "
            f"is it exchanged with {draft.path.name}?",
            "name the model as `path` and the head as `draft`",
        )


def _check_vocabulary(target: GgufHeader, draft: GgufHeader) -> Iterator[Problem]:
    types = [_vocabulary_type(header) for header in (target, draft)]
    if None not in types and types[0] != types[1]:
        yield _error(f"the target has a {types[0]} vocabulary and the draft a {types[1]} one")
        return
    yield from _check_added("bos", (target.add_bos, target.bos_id), (draft.add_bos, draft.bos_id))
    yield from _check_added("eos", (target.add_eos, target.eos_id), (draft.add_eos, draft.eos_id))
    if target.vocab_size is None or draft.vocab_size is None:
        return
    difference = abs(target.vocab_size - draft.vocab_size)
    if difference > LARGEST_SIZE_DIFFERENCE:
        yield _error(
            f"the target has {target.vocab_size} tokens and the draft {draft.vocab_size}: "
            f"{difference} apart, where the engine allows {LARGEST_SIZE_DIFFERENCE}"
        )
    elif _common_tokens_differ(target, draft):
        yield _error(
            "target and draft read the same token ids as different texts "
            f"(compared from id {FIRST_COMPARED_TOKEN} on): they are not of one family"
        )


def _check_added(
    name: str, target: tuple[bool | None, int | None], draft: tuple[bool | None, int | None]
) -> Iterator[Problem]:
    """Compare the token that is added to each text. What a file leaves out is the engine's
    default for the tokenizer, not known here, and so not compared."""
    (target_adds, target_id), (draft_adds, draft_id) = target, draft
    if target_adds is None or draft_adds is None:
        return
    if target_adds != draft_adds:
        adds = "the target" if target_adds else "the draft"
        yield _error(f"only {adds} puts a {name} token into each text")
    elif target_adds and None not in {target_id, draft_id} and target_id != draft_id:
        yield _error(f"the {name} token is {target_id} in the target and {draft_id} in the draft")


def _common_tokens_differ(target: GgufHeader, draft: GgufHeader) -> bool:
    """Compare the tokens that both have; the sizes differ by LARGEST_SIZE_DIFFERENCE at most."""
    longer, shorter = sorted(
        (target, draft), key=lambda header: header.vocab_size or 0, reverse=True
    )
    if not longer.prefix_digests or not shorter.prefix_digests:
        return False
    surplus = (longer.vocab_size or 0) - (shorter.vocab_size or 0)
    if surplus >= len(longer.prefix_digests):
        return False
    return longer.prefix_digests[-1 - surplus] != shorter.prefix_digests[-1]


def _vocabulary_type(header: GgufHeader) -> str | None:
    name = header.tokenizer_model
    return None if name is None else _VOCABULARY_TYPE.get(name, name)


def _size(header: GgufHeader) -> str:
    return f"{header.size_bytes / 1e9:.2f} GB"


def _error(sentence: str, hint: str = _ANOTHER_DRAFT) -> Problem:
    return Problem("error", sentence, hint)


def _warning(sentence: str, hint: str) -> Problem:
    return Problem("warning", sentence, hint)
