"""The thread that writes: nobody waits for it, and what it cannot keep it counts."""

from __future__ import annotations

import sqlite3
import threading
import time

import pytest

from autospec.state.recorder import Recorder
from autospec.state.store import Row, Store, Table, state_file


def row(number: int) -> Row:
    return Row(Table.DECISIONS, "m", str(number))


def kept() -> list[int]:
    with Store.reading() as store:
        return [int(one.document) for one in reversed(store.newest(Table.DECISIONS))]


class Stuck(Store):
    """A store on a disk that hangs until `free` is set."""

    free: threading.Event

    def put(self, *rows: Row) -> bool:
        self.free.wait()
        return super().put(*rows)


@pytest.fixture
def stuck() -> Stuck:
    store = Stuck.open()
    store.free = threading.Event()
    return store


def test_what_is_put_is_written_in_order_and_the_end_loses_nothing():
    recorder = Recorder(Store.open())
    for number in range(150):
        recorder.put(row(number))
    assert recorder.close()
    assert kept() == list(range(150))
    assert recorder.dropped == 0


def test_flush_waits_for_what_was_put():
    recorder = Recorder(Store.open())
    recorder.put(row(1), row(2))
    assert recorder.flush()
    assert kept() == [1, 2]
    assert recorder.close()


def test_nobody_waits_for_a_disk_that_hangs_and_the_oldest_are_dropped(stuck: Stuck):
    recorder = Recorder(stuck, most=10)
    recorder.put(row(0))
    while recorder._waiting:
        time.sleep(0.001)
    for number in range(1, 31):
        recorder.put(row(number))
    assert recorder.dropped == 20
    assert not recorder.flush(timeout=0.01)
    assert not recorder.close(timeout=0.01)
    stuck.free.set()
    assert recorder.close(timeout=30)
    assert kept() == [0, *range(21, 31)]


def test_what_could_not_be_written_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("autospec.state.recorder._AGAIN", (0.02, 0.1))
    said: list[str] = []
    with Store.open() as first:
        first.put(row(0))
    other = sqlite3.connect(state_file(), isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    recorder = Recorder(Store.open(say=said.append))
    recorder.put(row(1))
    while not said:
        time.sleep(0.01)
    recorder.put(row(2))
    other.execute("ROLLBACK")
    other.close()
    assert recorder.flush(timeout=60)
    assert recorder.close()
    assert kept() == [0, 1, 2]
    assert len(said) == 2


def test_the_end_does_not_wait_for_what_cannot_be_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("autospec.state.recorder._AGAIN", (600.0, 600.0))
    said: list[str] = []
    store = Store.reading(say=said.append)
    recorder = Recorder(store)
    recorder.put(row(1))
    while not said:
        time.sleep(0.01)
    assert recorder.close(timeout=30)
