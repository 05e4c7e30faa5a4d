"""The line of every key and list element of a TOML text."""

from __future__ import annotations

import string
import tomllib
from typing import Any

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from autospec.config.positions import Location, Positions


def locations_of(value: Any, at: Location = ()) -> set[Location]:
    inner = {at} if at else set()
    if isinstance(value, dict):
        for key, part in value.items():
            inner |= locations_of(part, (*at, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            inner |= locations_of(part, (*at, index))
    return inner


TEXT = '''\
top = 1 # a comment with [brackets] and "quotes

[server]
listen = "a # b"
"quoted key" = """
two
lines"""""
  [models."a.b"]
path = 'C:\\x'
extra = [
  "-ngl", "99", # one
  # nothing here
  ["deep", { in = 1, line = [2,
    3] }],
]
[models.plain]
a.b.c = 1979-05-27 07:32:00
a.d = \'\'\'
'quoted\'\'\'\'
[[list]]
x = 1
[[list]]
x = { }
[list.sub]
y = -inf
'''


def test_finds_the_line_of_every_kind_of_key() -> None:
    positions = Positions(TEXT)

    assert positions.locations() == locations_of(tomllib.loads(TEXT))
    lines = TEXT.splitlines()
    for location in positions.locations():
        key = location[-1]
        if isinstance(key, str):
            assert key in lines[positions.line(location) - 1]
    assert positions.line(("models", "a.b", "extra", 1)) == 11
    assert positions.line(("models", "a.b", "extra", 2, 1, "line", 1)) == 14
    assert positions.line(("list", 1, "sub", "y")) == len(lines)


def test_a_location_that_is_not_written_has_the_line_of_the_table_around_it() -> None:
    positions = Positions("a = 1\n\n[b.c]\nd = 2\n")

    assert positions.line(("b", "c", "missing")) == 3
    assert positions.line(("nowhere",)) == 1
    assert positions.line(()) == 1


def test_windows_line_ends_count_once() -> None:
    assert Positions("[a]\r\nb = 1\r\n\r\nc = '''\r\n'''\r\nd = 2").line(("a", "d")) == 6


keys = st.text(alphabet=string.ascii_letters + "-_ .\"'#[]=\n\té\\", max_size=6)
scalars = st.one_of(
    st.text(alphabet=string.ascii_letters + "\"'\n\t #[]{},=\\é", max_size=8),
    st.integers(-9, 9999),
    st.booleans(),
    st.floats(),
    st.dates(),
    st.datetimes(),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(keys, values, max_size=4), st.booleans())
def test_finds_exactly_what_the_reader_finds(document: dict[str, Any], multiline: bool) -> None:
    text = tomli_w.dumps(document, multiline_strings=multiline)

    assert Positions(text).locations() == locations_of(tomllib.loads(text))


@given(st.text(alphabet="ab\"'[]{}=,.#\n\\ 1", max_size=40))
def test_whatever_the_reader_takes_is_scanned_to_the_end(text: str) -> None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return

    assert Positions(text).locations() == locations_of(data)
