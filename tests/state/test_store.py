"""What is kept comes back, in the order of writing, and never more than the limits."""

from __future__ import annotations

import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.state import store as module
from autospec.state.store import LIMITS, MOST_CHARACTERS, Limits, Row, Store, Table, state_file


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(said: list[str]) -> Iterator[Store]:
    with Store.open(say=said.append) as opened:
        yield opened
    assert said == []


def documents(store: Store, table: Table, key: str | None = None) -> list[str]:
    return [kept.document for kept in store.newest(table, key)]


def test_the_newest_come_first_of_one_key_or_of_all(store: Store):
    for key, document in (("a", "1"), ("b", "2"), ("a", "3")):
        assert store.put(Row(Table.EPOCHS, key, document))
    assert documents(store, Table.EPOCHS) == ["3", "2", "1"]
    assert documents(store, Table.EPOCHS, "a") == ["3", "1"]
    assert [kept.document for kept in store.newest(Table.EPOCHS, most=1)] == ["3"]
    assert documents(store, Table.TRIALS) == []


def test_a_document_of_the_same_name_is_replaced_and_is_then_the_newest(store: Store):
    for name, document in (("one", "1"), ("two", "2"), ("one", "3")):
        store.put(Row(Table.TRIALS, "k", document, name))
    store.put(Row(Table.TRIALS, "other", "4", "one"))
    assert documents(store, Table.TRIALS, "k") == ["3", "2"]
    assert documents(store, Table.TRIALS, "other") == ["4"]


def test_what_one_process_wrote_the_next_one_reads(store: Store, said: list[str]):
    store.put(Row(Table.CALIBRATIONS, "k", "{}", at=12.5))
    with Store.reading(say=said.append) as other:
        [kept] = other.newest(Table.CALIBRATIONS, "k")
    assert (kept.key, kept.name, kept.at, kept.document) == ("k", None, 12.5, "{}")


def test_the_file_is_its_owners_alone(store: Store):
    store.put(Row(Table.EVENTS, "", "{}"))
    files = list(state_file().parent.iterdir())
    assert {file.name for file in files} >= {"state.db", "state.db-wal"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(state_file().parent.stat().st_mode) == 0o700


def test_a_file_that_others_may_read_is_closed_to_them(store: Store, said: list[str]):
    store.put(Row(Table.EVENTS, "", "{}"))
    state_file().chmod(0o644)
    with Store.open(say=said.append) as other:
        other.put(Row(Table.EVENTS, "", "{}"))
    assert stat.S_IMODE(state_file().stat().st_mode) == 0o600


def test_who_only_looks_makes_nothing(isolated: Path, said: list[str]):
    with Store.reading(say=said.append) as store:
        assert store.newest(Table.EVENTS) == []
        assert not store.put(Row(Table.EVENTS, "", "{}"))
    assert not state_file().parent.exists()
    assert len(said) == 1


def test_order_is_that_of_writing_whatever_the_clock_says(store: Store):
    for at, document in ((2e9, "1"), (1e9, "2"), (-5.0, "3"), (1.5e9, "4")):
        store.put(Row(Table.DECISIONS, "m", document, at=at))
    assert documents(store, Table.DECISIONS)[0] == "4"
    with Store.reading() as other:
        assert documents(other, Table.DECISIONS)[0] == "4"


def test_a_clock_that_was_years_behind_does_not_cost_the_newest(store: Store):
    store.put(Row(Table.CALIBRATIONS, "k", "first", at=0.0))
    store.put(Row(Table.CALIBRATIONS, "other", "later"))
    assert documents(store, Table.CALIBRATIONS) == ["later", "first"]


def test_what_is_older_than_the_limit_goes(store: Store):
    store.put(*(Row(Table.EVENTS, "m", str(i), at=100.0) for i in range(5)))
    store.put(Row(Table.EVENTS, "m", "new"))
    assert documents(store, Table.EVENTS) == ["new"]


def test_a_key_and_a_table_keep_so_many_and_no_more(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(LIMITS, Table.EPOCHS, Limits(each=3, rows=8, days=90))
    for turn in range(5):
        store.put(*(Row(Table.EPOCHS, f"k{key}", f"{turn} {key}") for key in range(4)))
    assert documents(store, Table.EPOCHS, "k3") == ["4 3", "3 3"]
    assert len(documents(store, Table.EPOCHS)) == 8
    store.put(*(Row(Table.EPOCHS, "one", str(turn)) for turn in range(9)))
    assert documents(store, Table.EPOCHS, "one") == ["8", "7", "6"]


def test_documents_together_keep_below_a_size(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_TABLE_CHARACTERS", 100)
    for turn in range(20):
        store.put(Row(Table.EVENTS, "", f"{turn:030}"))
    assert documents(store, Table.EVENTS) == [f"{turn:030}" for turn in (19, 18, 17)]


def test_the_file_stays_flat(isolated: Path):
    sizes = []
    for _ in range(4):
        with Store.open() as store:
            for _ in range(6):
                store.put(*(Row(Table.EVENTS, "m", "x" * 300) for _ in range(500)))
        sizes.append(sum(file.stat().st_size for file in state_file().parent.iterdir()))
    assert max(sizes[1:]) <= 1.1 * min(sizes[1:])
    with Store.reading() as store:
        assert len(store.newest(Table.EVENTS, most=9999)) == LIMITS[Table.EVENTS].rows


def test_a_document_that_is_too_large_is_left_out_and_said(isolated: Path, said: list[str]):
    with Store.open(say=said.append) as store:
        assert store.put(
            Row(Table.EVENTS, "", "x" * (MOST_CHARACTERS + 1)), Row(Table.EVENTS, "", "small")
        )
        assert documents(store, Table.EVENTS) == ["small"]
    assert len(said) == 1


TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
ROWS = st.tuples(st.sampled_from(Table), TEXT, st.none() | TEXT, TEXT, st.floats(allow_nan=False))


def as_utf8(text: str | None) -> str | None:
    return None if text is None else text.encode(errors="replace").decode()


@settings(max_examples=50)
@given(rows=st.lists(ROWS, min_size=1, max_size=20))
def test_whatever_is_put_comes_back_as_far_as_text_can_hold_it(
    rows: list[tuple[Table, str, str | None, str, float]],
):
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "s.db") as store:
        for table, key, name, document, at in rows:
            assert store.put(Row(table, key, document, name, at))
            [kept] = store.newest(table, key, most=1)
            assert kept.at == at
            found = (kept.key, kept.name, kept.document)
            assert found == (as_utf8(key), as_utf8(name), as_utf8(document))


def test_rows_of_other_types_than_ours_are_passed_over(store: Store):
    store.put(Row(Table.EPOCHS, "k", "good"))
    with sqlite3.connect(state_file()) as intruder:
        for document in (b"\x00", 5, 2.5, sqlite3.Binary(b"x" * 9)):
            intruder.execute(
                "INSERT INTO epochs (key, name, at, document) VALUES (?, ?, ?, ?)",
                ("k", None, "yesterday", document),
            )
    intruder.close()
    assert documents(store, Table.EPOCHS, "k") == ["good"]
