"""Reading of addresses, times, arguments and speculation types."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import values
from autospec.config.values import Address

BASE = Path("/etc/autospec")


@pytest.mark.parametrize(
    ("written", "private"),
    [
        ("127.0.0.1:8080", True),
        ("127.9.9.9:1", True),
        ("localhost:65535", True),
        ("[::1]:8080", True),
        ("unix:/run/a.sock", True),
        ("0.0.0.0:8080", False),
        ("[::]:8080", False),
        ("192.168.1.4:80", False),
        ("localhost.example:80", False),
        ("example.org:80", False),
    ],
)
def test_an_address_is_private_only_where_that_is_certain(written: str, private: bool) -> None:
    address = values.address(written, BASE)

    assert str(address) == written
    assert address.private is private


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "8080",
        ":8080",
        "a:b",
        "a:0",
        "a:65536",
        "::1:80",
        "[zz]:1",
        "[1.2.3.4]:1",
        "unix:",
        8080,
    ],
)
def test_refuses_what_is_no_address(wrong: object) -> None:
    with pytest.raises(ValueError):
        values.address(wrong, BASE)


def test_a_relative_socket_starts_at_the_folder_of_the_file() -> None:
    assert values.address("unix:a.sock", BASE) == Address(socket=BASE / "a.sock")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(90, 90.0), (0.5, 0.5), ("90s", 90.0), ("2m", 120.0), ("1h30m", 5400.0), ("1.5m", 90.0)],
)
def test_reads_times(written: object, seconds: float) -> None:
    assert values.duration(written) == seconds


@pytest.mark.parametrize(
    "wrong",
    [0, -1, True, "", "2", "2 m", "-2m", "m", "2m3", float("nan"), float("inf"), 10**400, "9999d"],
)
def test_refuses_what_is_no_time(wrong: object) -> None:
    with pytest.raises(ValueError):
        values.duration(wrong)


@given(st.integers(1, 86_400))
def test_a_written_time_reads_back(seconds: int) -> None:
    assert values.duration(values.written_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("written", "types"),
    [
        ("auto", "auto"),
        ("off", "off"),
        ("none", "off"),
        (["off"], "off"),
        ("draft-simple", ("draft-simple",)),
        ("draft-mtp, ngram-mod", ("draft-mtp", "ngram-mod")),
        (["draft-mtp", "ngram-mod", "draft-mtp"], ("draft-mtp", "ngram-mod")),
    ],
)
def test_reads_speculation_types(written: object, types: object) -> None:
    assert values.speculation_types(written) == types


@pytest.mark.parametrize("wrong", ["", [], "auto,draft-simple", "A", "a b", ",", 3, [1], ["a,b"]])
def test_refuses_what_is_no_speculation_type(wrong: object) -> None:
    with pytest.raises(ValueError):
        values.speculation_types(wrong)


@given(st.text(max_size=12))
def test_the_published_pattern_of_types_is_what_the_reader_takes(text: str) -> None:
    try:
        values.speculation_types(text)
    except ValueError:
        return
    assert re.search(values.TYPES_PATTERN, text.strip())


@given(
    st.one_of(
        st.text(max_size=20),
        st.integers(),
        st.floats(),
        st.booleans(),
        st.lists(st.one_of(st.text(max_size=4), st.integers()), max_size=3),
    )
)
def test_every_reader_either_reads_or_says_what_is_wrong(value: object) -> None:
    readers = (
        lambda: values.address(value, BASE),
        lambda: values.path(value, BASE),
        lambda: values.duration(value),
        lambda: values.argument(value),
        lambda: values.variable(value),
        lambda: values.speculation_types(value),
    )
    for reader in readers:
        try:
            result = reader()
        except ValueError as error:
            assert str(error)
        else:
            assert "\0" not in str(result)


@pytest.mark.parametrize("address", ["10.0.0.2:50052", "box.local:1", "a_b-c:65535"])
def test_a_worker_is_a_host_and_a_port(address: str) -> None:
    assert values.worker(address) == address


@pytest.mark.parametrize(
    "address",
    ["", "box", "box:", ":1", "box:0", "box:65536", "a,b:1", "-x:1", "[::1]:1", "b:1\n", 5],
)
def test_what_is_no_worker_is_refused(address: object) -> None:
    with pytest.raises(ValueError):
        values.worker(address)
