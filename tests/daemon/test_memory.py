"""What traffic taught, and what happened, in the next life of the daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest

from autospec.daemon.events import Events, recorded
from autospec.daemon.memory import Learned, Memory, Tried
from autospec.state.recorder import Recorder
from autospec.state.store import Row, Store, Table
from autospec.tuning.observations import Counters

LEARNED = Learned(8, 0, 0.4, Counters(100, 400, 180, (80, 60, 40), 500, 12.5), 300.0, 1.5)
TRIED = Tried(8, 0, 0.4, rate=11.0, plain=14.5, depth=300.0, busy=2)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder(Store.open())
    yield recorder
    assert recorder.close()


@pytest.fixture
def memory(recorder: Recorder) -> Memory:
    return Memory(recorder)


def test_epochs_are_kept_side_by_side_and_one_under_way_is_replaced(
    memory: Memory, recorder: Recorder
) -> None:
    longer = replace(LEARNED, depth=900.0)
    memory.learn("key", "first", LEARNED)
    memory.learn("key", "second", replace(LEARNED, n_max=3))
    memory.learn("key", "second", longer)
    assert recorder.flush()
    assert memory.epochs("key") == [longer, LEARNED]
    assert memory.learned("key") == longer
    assert memory.learned("another") is None


def test_a_trial_replaces_the_one_of_the_same_setting_and_regime(
    memory: Memory, recorder: Recorder
) -> None:
    again, deeper = replace(TRIED, rate=12.0, depth=310.0), replace(TRIED, depth=8000.0)
    for trial in (TRIED, again, deeper):
        memory.tried("key", trial)
    assert recorder.flush()
    assert memory.trials("key") == [deeper, again]


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


GOOD = {"format": 1, **asdict(LEARNED)}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps(GOOD | {"format": 99}),
        json.dumps({name: value for name, value in GOOD.items() if name != "counters"}),
        json.dumps(GOOD | {"counters": {"drafts": 1}}),
        json.dumps(GOOD | {"counters": 3}),
        json.dumps(GOOD | {"strange": 1}),
        json.dumps(GOOD | {"n_max": "8"}),
        json.dumps(GOOD | {"n_max": True}),
        json.dumps(GOOD | {"depth": "deep"}),
        json.dumps(GOOD | {"busy": None}),
        json.dumps(GOOD | {"p_min": -1.0}),
        json.dumps(GOOD | {"depth": float("nan")}),
        json.dumps(GOOD | {"depth": 10**400}),
        json.dumps(GOOD | {"counters": {**asdict(LEARNED.counters), "drafts": "x"}}),
        json.dumps(GOOD | {"counters": {**asdict(LEARNED.counters), "per_position": ["x"]}}),
    ],
)
@pytest.mark.parametrize("table", [Table.EPOCHS, Table.TRIALS, Table.DEGRADATIONS])
def test_what_cannot_be_understood_is_passed_over(
    memory: Memory, recorder: Recorder, table: Table, document: str
) -> None:
    memory.learn("key", "epoch", LEARNED)
    memory.tried("key", TRIED)
    memory.degraded("key", "a step")
    recorder.put(Row(table, "key", document))
    assert recorder.flush()
    assert memory.epochs("key") == [LEARNED]
    assert memory.trials("key") == [TRIED]
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
    assert [event.level for event in events.kept] == ["info", "info", "warning"]
