"""Workloads: distinct, the same in every run, and a user's own prompts from hostile files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.bench.workloads import KINDS, MIXTURE, MULTI_TURN, deep_request, requests_of
from autospec.calibration.prompts import prompts
from autospec.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def last(request) -> str:
    return request.messages[-1]["content"]


def test_every_request_is_another_text_and_none_was_learned_from() -> None:
    found = requests_of()
    texts = [last(one) for name, all_ in found.items() if name != MIXTURE for one in all_]
    assert len(texts) == len(set(texts))
    assert not set(texts) & {one.text for one in prompts("learning")}
    assert all(len(found[kind]) >= 8 for kind in (*KINDS, MULTI_TURN))


def test_the_mixture_holds_everything_in_an_order_that_never_changes() -> None:
    found = requests_of()
    apart = [one for name, all_ in found.items() if name != MIXTURE for one in all_]
    assert sorted(map(last, apart)) == sorted(map(last, found[MIXTURE]))
    assert requests_of()[MIXTURE] == found[MIXTURE]
    assert {one.kind for one in found[MIXTURE][:12]} >= {"code", "prose"}


def test_a_conversation_grows_and_ends_with_the_user() -> None:
    requests = requests_of()[MULTI_TURN]
    lengths = [len(one.messages) for one in requests]
    assert lengths == [1, 3, 5, 7, 1, 3, 5, 7]
    assert all(one.messages[-1]["role"] == "user" for one in requests)
    assert requests[1].messages[0] == requests[0].messages[0]


@given(st.integers(1, 4000), st.integers(0, 20))
def test_long_contexts_are_as_long_as_asked_and_each_another(depth: int, number: int) -> None:
    text = last(deep_request(depth, number))
    assert text == last(deep_request(depth, number))
    assert text != last(deep_request(depth, number + 1))
    assert depth / 3 <= len(text.split()) <= depth + 60


def test_own_prompts_come_as_lines_or_as_json(tmp_path: Path) -> None:
    plain = tmp_path / "own.txt"
    plain.write_text("Say one thing.\n\n  Say another.\n")
    (requests,) = requests_of(plain).values()
    assert [last(one) for one in requests] == ["Say one thing.", "Say another."]
    chat = tmp_path / "own.jsonl"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    chat.write_text(json.dumps({"prompt": "Hi"}) + "\n" + json.dumps({"messages": messages}))
    (requests,) = requests_of(chat).values()
    assert [len(one.messages) for one in requests] == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "[" * 100_000,
        "{}",
        '{"prompt": ""}',
        '{"prompt": 3}',
        '{"messages": []}',
        '{"messages": [{"role": "root", "content": "x"}]}',
        '{"messages": [{"role": "user", "content": 1}]}',
        '{"messages": [{"role": "assistant", "content": "x"}]}',
        '"text"',
        "null",
    ],
)
def test_files_that_hold_no_prompts_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"own\.jsonl"):
        requests_of(path)
