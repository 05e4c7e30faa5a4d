"""What is remembered of engines under the library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autospec import paths
from autospec.engine.live.trust import Trust, recall, remember_crash, remember_proof

pytestmark = pytest.mark.live

LIBRARY = Path("/cache/live-abc.so")


def test_an_unknown_engine_is_neither_proven_nor_refused() -> None:
    assert recall("e", LIBRARY) == Trust()
    assert Trust().refusal() is None


def test_a_proof_and_a_crash_are_kept_side_by_side() -> None:
    remember_proof("e", LIBRARY)
    remember_crash("e", LIBRARY, 1000.0)
    assert recall("e", LIBRARY) == Trust(proven=True, crashes=(1000.0,))
    assert recall("other", LIBRARY) == Trust()
    assert recall("e", LIBRARY).refusal() is None


def test_two_crashes_within_minutes_put_it_aside_for_that_engine_and_library() -> None:
    remember_crash("e", LIBRARY, 1000.0)
    remember_crash("e", LIBRARY, 1300.0)
    refused = recall("e", LIBRARY).refusal()
    assert refused is not None
    assert "crashed 2 times" in refused
    assert recall("e", Path("/cache/live-other.so")).refusal() is None


def test_crashes_far_apart_do_not() -> None:
    for when in (0.0, 1000.0, 2000.0):
        remember_crash("e", LIBRARY, when)
    assert recall("e", LIBRARY).refusal() is None


def test_the_store_is_private() -> None:
    remember_proof("e", LIBRARY)
    assert paths.state().stat().st_mode & 0o077 == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=40), JSON.map(lambda value: json.dumps(value).encode())))
def test_any_file_is_read_and_written_over(content: bytes) -> None:
    store = paths.private(paths.state()) / "live.json"
    store.write_bytes(content)
    recall("e", LIBRARY)
    remember_proof("e", LIBRARY)
    assert recall("e", LIBRARY).proven


@given(JSON, JSON)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_entry_is_read(proven: object, crashes: object) -> None:
    store = paths.private(paths.state()) / "live.json"
    entry = {"proven": proven, "crashes": crashes}
    store.write_text(json.dumps({f"e {LIBRARY.stem}": entry}))
    known = recall("e", LIBRARY)
    assert known.proven is (proven is True)
    assert known.refusal() is None or len(known.crashes) >= 2
