"""What traffic taught, and what happened, in the next life of the daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autospec.daemon.events import Events, recorded
from autospec.daemon.memory import Memory
from autospec.state.recorder import Recorder
from autospec.state.store import Row, Store, Table

LEARNED = {"acceptance": {"rounds": 12.5}, "traffic": [300.0, 2, 40]}
FAILED = {"failed": [["live thresholds", 2, 1, 0.9, 0.8]]}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder(Store.open())
    yield recorder
    assert recorder.close()


@pytest.fixture
def memory(recorder: Recorder) -> Memory:
    return Memory(recorder)


def test_what_was_learned_and_what_failed_is_kept_by_key_and_replaced(
    memory: Memory, recorder: Recorder
) -> None:
    memory.learn("key", {"acceptance": {}})
    memory.learn("key", LEARNED)
    memory.fail("key", FAILED)
    assert recorder.flush()
    assert memory.learned("key") == LEARNED
    assert memory.failed("key") == FAILED
    assert memory.learned("another") is None
    assert memory.failed("another") is None


def test_steps_down_the_ladder_and_decisions_are_remembered(
    memory: Memory, recorder: Recorder
) -> None:
    for step in ("draft on the CPU", "half the context", "draft on the CPU"):
        memory.degraded("key", step)
    for number in range(12):
        memory.decided("chat", {"action": "keep", "rate": float(number), "why": ["a", None]})
    assert recorder.flush()
    assert memory.degradations("key") == ["draft on the CPU", "half the context"]
    assert [one["rate"] for one in memory.decisions("chat")] == list(map(float, range(11, 1, -1)))
    assert memory.decisions("other") == []


@pytest.mark.parametrize(
    "document", ["", "{", "[]", "null", "[" * 100_000, '{"format": 99}', '{"step": "x"}', "NaN"]
)
@pytest.mark.parametrize("table", [Table.EPOCHS, Table.TRIALS, Table.DEGRADATIONS])
def test_what_cannot_be_understood_is_passed_over(
    memory: Memory, recorder: Recorder, table: Table, document: str
) -> None:
    memory.degraded("key", "a step")
    recorder.put(Row(table, "key", document))
    recorder.put(Row(table, "other", document))
    assert recorder.flush()
    assert memory.learned("other") is None
    assert memory.failed("other") is None
    assert memory.degradations("key") == ["a step"]


def test_events_outlive_the_daemon_and_this_life_is_told_apart(recorder: Recorder) -> None:
    first = Events()
    first.add("before the file was open")
    first.keep_in(recorder)
    first.add("loading", model="chat")
    first.add("a \x1b[31mline\n of the child", model="chat", level="warning")
    assert first.earlier == ()
    assert recorder.flush()
    second = Events()
    second.keep_in(recorder)
    assert [event.text for event in second.earlier] == [
        "before the file was open",
        "loading",
        "a  [31mline  of the child",
    ]
    assert second.earlier == tuple(first.kept)
    assert list(second.kept) == []
    assert [event.level for event in recorded(recorder.store, "chat")] == ["info", "warning"]


@pytest.mark.parametrize(
    "document", ["{", "[]", "5", '{"level": "odd", "text": ""}', '{"level": "info", "text": 5}']
)
def test_a_strange_event_is_passed_over(recorder: Recorder, document: str) -> None:
    recorder.put(Row(Table.EVENTS, "", document))
    events = Events()
    events.add("good")
    events.keep_in(recorder)
    assert recorder.flush()
    assert [event.text for event in recorded(recorder.store)] == ["good"]


def test_trouble_with_the_file_is_an_event_that_is_said_once() -> None:
    events = Events()
    recorder = Recorder(Store.reading(say=lambda text: events.add(text, level="warning")))
    events.keep_in(recorder)
    events.add("one")
    events.add("two")
    assert not recorder.flush(timeout=0.2)
    assert recorder.close()
    assert sorted(event.level for event in events.kept) == ["info", "info", "warning"]
