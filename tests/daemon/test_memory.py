from __future__ import annotations

import json
import stat

import pytest

from autospec import paths
from autospec.daemon import memory
from autospec.daemon.memory import Learned
from autospec.tuning.observations import Counters

LEARNED = Learned(8, 0, 0.4, Counters(100, 400, 180, (80, 60, 40), 500, 12.5), 300.0, 1.5)


def test_what_was_kept_comes_back() -> None:
    memory.save("key", LEARNED)
    assert memory.load("key") == LEARNED
    assert memory.load("another") is None


def test_only_the_owner_can_look() -> None:
    memory.save("key", LEARNED)
    folder = paths.state() / "learned"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "key.json").stat().st_mode) == 0o600


def test_a_new_one_replaces_the_old_and_leaves_nothing_beside() -> None:
    memory.save("key", LEARNED)
    memory.save("key", LEARNED)
    assert [path.name for path in (paths.state() / "learned").iterdir()] == ["key.json"]


GOOD = {
    "format": 1,
    "n_max": 8,
    "n_min": 0,
    "p_min": 0.4,
    "counters": {"drafts": 1, "drafted": 1, "accepted": 1, "per_position": [1]},
    "depth": 1.0,
    "busy": 1.0,
}


@pytest.mark.parametrize(
    "text",
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
    ],
)
def test_a_file_that_cannot_be_read_is_set_aside(text: str) -> None:
    memory.save("key", LEARNED)
    path = paths.state() / "learned/key.json"
    path.write_text(text)
    assert memory.load("key") is None
    assert not path.exists()
    assert path.with_suffix(".corrupt").read_text() == text
    memory.save("key", LEARNED)
    assert memory.load("key") == LEARNED


def test_bytes_that_are_no_text_are_set_aside() -> None:
    memory.save("key", LEARNED)
    (paths.state() / "learned/key.json").write_bytes(b"\xff\xfe\x00")
    assert memory.load("key") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_max": "8"},
        {"depth": "deep"},
        {"busy": None},
        {"p_min": -1.0},
        {"depth": float("nan")},
        {"counters": {"drafts": "x", "drafted": 1, "accepted": 1, "per_position": [1]}},
        {"counters": {"drafts": 1, "drafted": 1, "accepted": 1, "per_position": ["x"]}},
    ],
)
def test_values_that_cannot_be_are_set_aside(wrong: dict[str, object]) -> None:
    memory.save("key", LEARNED)
    (paths.state() / "learned/key.json").write_text(json.dumps(GOOD | wrong))
    assert memory.load("key") is None
