"""Settings that the front door adds to requests for engines that take them there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from doors import open_door, play
from hypothesis import given
from hypothesis import strategies as st

from autospec.daemon.front.fields import with_fields

FIELDS = {"speculative.n_max": 2, "speculative.p_min": 0.5}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON), st.sampled_from([None, 2]), st.sampled_from(["", " \n"]))
def test_a_request_keeps_all_that_it_said(
    said: dict[str, object], indent: int | None, before: str
) -> None:
    body = (before + json.dumps(said, indent=indent)).encode()
    assert json.loads(with_fields(body, "/completion", FIELDS)) == FIELDS | said


def test_what_the_client_says_itself_comes_last() -> None:
    got = with_fields(b'{"speculative.n_max": 7}', "/completion", FIELDS)
    assert json.loads(got)["speculative.n_max"] == 7
    assert got.index(b'"speculative.n_max": 2') < got.index(b'"speculative.n_max": 7')


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"a": 1}', "/embedding"),
        (b'{"a": 1}', "/v1/embeddings"),
        (b"[1, 2]", "/completion"),
        (b"", "/completion"),
        (gzip.compress(b'{"a": 1}'), "/completion"),
    ],
)
def test_what_is_no_completion_is_left_alone(body: bytes, path: str) -> None:
    assert with_fields(body, path, FIELDS) is body


def test_the_front_door_adds_what_is_in_force_when_a_request_passes(
    tmp_path: Path, free_port: int
) -> None:
    async def check() -> None:
        async with open_door(tmp_path, free_port) as door:
            gate, child = door.gates["chat"], door.children["chat"]
            for fields in (None, FIELDS, FIELDS | {"speculative.n_max": 5}):
                gate.fields = lambda fields=fields: fields
                await door.post("/v1/chat/completions?x=1", json={"prompt": "a"})
                assert json.loads(child.asked[-1].body) == {"prompt": "a"} | (fields or {})

    play(check())
