"""Pins are set and taken out without touching anything else."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config.edit import pin, pinned
from autospec.config.faults import ConfigFaults
from autospec.config.names import PINS
from autospec.errors import ConfigError

TEXT = """\
# mine
[models.chat]  # the good one
hf = "a/b"   # aligned
n_max = 8    # by hand

[models."q2.5"]
hf = "c/d"

[retune]
enabled = true
"""
PATH = Path("autospec.toml")


def test_a_pin_is_changed_in_its_place() -> None:
    assert pinned(TEXT, "chat", "n_max", 4, path=PATH) == TEXT.replace("n_max = 8 ", "n_max = 4 ")


def test_a_new_pin_joins_its_model() -> None:
    changed = pinned(TEXT, "q2.5", "thresholds", (0.5, 0.25), path=PATH)

    assert tomllib.loads(changed)["models"]["q2.5"]["thresholds"] == [0.5, 0.25]
    assert 'hf = "a/b"   # aligned' in changed


def test_a_pin_is_taken_out() -> None:
    assert pinned(TEXT, "chat", "n_max", None, path=PATH) == TEXT.replace(
        "n_max = 8    # by hand\n", ""
    )
    assert pinned(TEXT, "chat", "p_min", None, path=PATH) == TEXT


@pytest.mark.parametrize(
    ("model", "key", "message"),
    [("chat", "slots", "slots is no pin"), ("gone", "n_max", "no model gone")],
)
def test_only_pins_of_models_that_are_there(model: str, key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pinned(TEXT, model, key, 1, path=PATH)


def test_the_file_is_replaced_with_its_permissions_and_through_links(tmp_path: Path) -> None:
    file, link = tmp_path / "real.toml", tmp_path / "autospec.toml"
    file.write_text(TEXT)
    file.chmod(0o640)
    link.symlink_to(file)

    config = pin(link, "chat", {"n_max": 5})

    assert config.models["chat"].n_max == 5
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_pin_that_does_not_fit_leaves_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "autospec.toml"
    file.write_text(TEXT)

    with pytest.raises(ConfigFaults) as raised:
        pin(file, "chat", {"n_max": 99})

    assert raised.value.faults[0].line == 4
    assert file.read_text() == TEXT


LINES = st.sampled_from(
    [
        "[models.chat]",
        "[models]",
        "chat.n_max = 3",
        "chat = { n_max = 1, hf = 'a' }",
        "chat = {}",
        "n_max = 2 # c",
        "[models.chat.deep]",
        "models.chat.p_min = 1",
        "[[models.chat]]",
        "[other]",
        "'n_max' = 3",
        "",
        "x = '''\nn_max = 3\n'''",
    ]
)
VALUES = st.one_of(st.none(), st.integers(0, 9), st.floats(0, 1), st.lists(st.floats(0, 1)))


@given(st.lists(LINES, max_size=7).map("\n".join), st.sampled_from(PINS), VALUES)
def test_an_edit_changes_that_key_alone_or_is_refused(
    text: str, key: str, value: float | list[float] | None
) -> None:
    try:
        changed = pinned(text, "chat", key, value, path=PATH)
    except ConfigError:
        return
    before, after = tomllib.loads(text), tomllib.loads(changed)
    assert after["models"]["chat"].get(key) == value
    for data in (before, after):
        data["models"]["chat"].pop(key, None)
    assert before == after
