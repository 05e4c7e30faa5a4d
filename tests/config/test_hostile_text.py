"""Text that no person wrote is a list of faults, found soon and shown short."""

from __future__ import annotations

import pytest
from faulty import PATH
from hypothesis import given
from hypothesis import strategies as st

from autospec.config.faults import ConfigFaults
from autospec.config.load import parse
from autospec.config.schema import Config

LINES = st.sampled_from(
    [
        "[server]",
        "[models.a]",
        "[models]",
        "[[models]]",
        "[models.a.b]",
        "[engine.environment]",
        "[calibration]",
        'listen = "0.0.0.0:1"',
        'listen = "unix:x"',
        'listen = ["a"]',
        "api_key_file = {}",
        'path = "x"',
        'hf = "a/b"',
        'extra = ["--port", {a = 1}, [2], nan]',
        'extra = "-m \'"',
        "thresholds = [0.5, 2, 'x', []]",
        "n_max = 1e400",
        "type = []",
        "type = [[]]",
        "budget = 07:32:00",
        "depths = [[0]]",
        "a.b.c = 1",
        "'' = 1",
        "models = 3",
        "server = []",
        "slots = 99999999999999999999",
    ]
)


@given(st.one_of(st.text(max_size=60), st.lists(LINES, max_size=8).map("\n".join)))
def test_any_text_is_a_configuration_or_a_list_of_faults(text: str) -> None:
    try:
        config = parse(text, path=PATH)
    except ConfigFaults as error:
        assert error.faults
        assert list(error.faults) == sorted(error.faults, key=lambda one: (one.line, one.key))
        assert all(1 <= one.line <= text.count("\n") + 1 for one in error.faults)
    else:
        assert isinstance(config, Config)
        assert config.models


@pytest.mark.parametrize(
    "text", ["a." * 3000 + "a = 1", "[" + "a." * 3000 + "a]", "x = {" + "a. " * 99]
)
def test_a_key_of_thousands_of_parts_is_refused_at_once(text: str) -> None:
    with pytest.raises(ConfigFaults, match=":2: a key of more than 32 parts"):
        parse("# here\n" + text, path=PATH)


@pytest.mark.parametrize(
    "line",
    [
        "engine.start_timeout = {}",
        "server.wait = {}",
        "calibration.budget = {}",
        "retune.after = {}",
    ],
)
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_whole_number_that_no_float_can_hold_is_out_of_range(line: str, sign: str) -> None:
    with pytest.raises(ConfigFaults, match="is out of range"):
        parse(line.format(sign + "9" * 400) + '\nmodels.chat.hf = "a/b"', path=PATH)


def test_an_argument_may_be_any_whole_number() -> None:
    config = parse(
        '[models.chat]\nhf = "a/b"\nextra = ["--seed", -9{}]'.format("9" * 400), path=PATH
    )
    assert config.models["chat"].extra[1] == "-9" + "9" * 400


def test_what_a_file_says_is_shown_short_and_cannot_act_on_the_terminal() -> None:
    strange = f'"a\\u001b[2J{"k" * 5000}" = 1'
    text = f'[server]\nlisten = "{"9" * 5000}:1"\n{strange}\n[models.a]\nhf = "a/b"\n'
    with pytest.raises(ConfigFaults) as caught:
        parse(text, path=PATH)
    lines = str(caught.value).split("\n")
    assert len(lines) > 1
    assert all(line.isprintable() and len(line) < 1500 for line in lines)
