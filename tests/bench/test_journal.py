"""The journal: whole lines survive, a line that was cut off does not, and it can go on."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autospec.bench.journal import Journal, key_of


def test_records_come_back_in_order() -> None:
    first = Journal("a")
    first.add("row", {"cell": "code", "ms": 1.5})
    first.add("sweep", {"ms": None})
    again = Journal("a")
    assert again.records == first.records
    assert [one["ms"] for one in again.of("sweep")] == [None]
    assert Journal("b").records == []
    assert first.path.stat().st_mode & 0o077 == 0 or first.path.parent.stat().st_mode & 0o077 == 0
    again.forget()
    assert Journal("a").records == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_a_broken_end_is_cut_off_and_the_rest_goes_on(junk: bytes) -> None:
    journal = Journal("c")
    journal.forget()
    journal.add("row", {"n": 1})
    with journal.path.open("ab") as file:
        file.write(b"{" + junk)
    again = Journal("c")
    assert again.records[0] == {"kind": "row", "n": 1}
    again.add("row", {"n": 2})
    assert Journal("c").records == again.records
    assert all(json.loads(line) for line in journal.path.read_text().splitlines())


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Journal("d").add("row", {"ms": float("nan")})


def test_keys_differ_with_what_they_are_made_of() -> None:
    assert key_of([1, "a"]) == key_of([1, "a"]) != key_of([1, "b"])
