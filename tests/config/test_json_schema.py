"""The published schema, the example and the shipped files say what the loader does."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from autospec.config.example import example
from autospec.config.faults import ConfigFaults
from autospec.config.json_schema import annotated, fragment, published, words
from autospec.config.load import load
from autospec.config.schema import Config, ModelConfig

CONFIGS = Path(__file__).parents[2] / "configs"
VALIDATOR = jsonschema.Draft202012Validator(published())
SHIPPED = sorted(CONFIGS.glob("*.toml"))


def options() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (section, key, option)
        for section in annotated()["properties"]
        for key, option in fragment(("models", "NAME") if section == "models" else (section,))[
            "properties"
        ].items()
    ]


def accepted(data: dict[str, Any]) -> bool:
    try:
        Config.model_validate(data, context={"base": Path("/")})
    except ValidationError:
        return False
    return True


def test_the_shipped_schema_and_example_are_up_to_date() -> None:
    schema = json.loads((CONFIGS / "autospec.schema.json").read_text())

    assert schema == published(), "run: autospec schema > configs/autospec.schema.json"
    assert (CONFIGS / "autospec.example.toml").read_text() == example(), (
        "run: autospec schema --example > configs/autospec.example.toml"
    )


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(published())
    assert "expected" not in json.dumps(published())


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_files_are_sound_but_for_the_files_they_name(file: Path) -> None:
    data = tomllib.loads(file.read_text())

    assert not list(VALIDATOR.iter_errors(data))
    try:
        load(file)
    except ConfigFaults as error:
        assert {fault.message.rpartition(" ")[2] for fault in error.faults} == {"exist"}
        assert file.name != "autospec.example.toml"


def test_the_example_shows_every_option_with_its_default() -> None:
    switched_on = re.sub(r"^#(?=\w+ = )", "", example(), flags=re.MULTILINE)

    data = tomllib.loads(switched_on)

    assert set(data) == {"server", "engine", "models", "calibration", "retune"}
    tables = {**data, "models": data["models"]["chat"]}
    for section, key, option in options():
        shown = tables[section].pop(key)
        assert shown == option.get("default", option.get("examples", [None])[0])
    assert not any(tables.values())
    assert accepted(data)


def test_options_switched_on_at_their_defaults_change_nothing() -> None:
    defaults: dict[str, Any] = {"models": {"a": {}}}
    for section, key, option in options():
        if "default" in option:
            table = defaults["models"]["a"] if section == "models" else defaults
            (table if section == "models" else table.setdefault(section, {}))[key] = option[
                "default"
            ]

    assert Config.model_validate(defaults) == Config(models={"a": ModelConfig()})


def test_every_option_is_described() -> None:
    for _, key, option in options():
        assert len(option["description"]) > 10, key
        assert words(option), key


SAMPLES = st.sampled_from(
    [
        *("auto", "off", "on", "", " ", "2m", "90s", "1h 3m", "m", "0.5s", "unix:/a", "unix:"),
        *("127.0.0.1:80", "[::1]:80", "a b:1", "host", "a/b", "a/b:Q4", "a//b", "-ngl 99"),
        *("draft-simple", "draft-mtp, ngram-mod", "Draft", "x\n"),
        *(0, 1, 2, 16, 64, 65, 256, 257, -1, 86400, 86401, 10**9),
        *(0.5, 1.5, -0.5, True, False),
        *([], [1], [0, 512], [-1], [0.5], [1.5], ["a"], [True], [[]], {}),
        *({"A": "b"}, {"A": 1}, {"A-B": "c"}, {"A": []}),
    ]
)
KEYS = st.sampled_from([(section, key) for section, key, _ in options()] + [("server", "odd")])


@given(st.dictionaries(KEYS, SAMPLES, max_size=4), st.sampled_from(["a", "a b", "", "é", "A.1-_"]))
def test_editor_and_loader_agree(settings: dict[tuple[str, str], Any], name: str) -> None:
    data: dict[str, Any] = {}
    for (section, key), value in settings.items():
        table = data.setdefault(section, {})
        (table.setdefault(name, {}) if section == "models" else table)[key] = value
    assume(not any(value in ("unix:", "x\n") for value in settings.values()))

    assert VALIDATOR.is_valid(data) is accepted(data)
