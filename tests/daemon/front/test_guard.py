from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from autospec.config.schema import ServerSection
from autospec.config.values import Address
from autospec.daemon.front.errors import Refused
from autospec.daemon.front.guard import (
    Guard,
    Keys,
    check_framing,
    host_allowed,
    to_child,
    to_client,
)
from autospec.errors import ServeError

LOOPBACK = Address("127.0.0.1", 8080)
tokens = st.from_regex(r"[A-Za-z-]{1,20}", fullmatch=True)
pairs = st.lists(st.tuples(tokens, st.text(st.characters(min_codepoint=32, max_codepoint=126))))


def guard(address: Address = LOOPBACK, keys: tuple[str, ...] = (), **settings: object) -> Guard:
    return Guard.of(ServerSection.model_validate(settings), address, Keys(keys))


def refusal(guard: Guard, target: str = "/v1/models", **headers: str) -> int | None:
    named = CIMultiDict({key.replace("_", "-"): value for key, value in headers.items()})
    try:
        guard.check_origin(named)
        guard.check_key("GET", target, named)
    except Refused as refused:
        return refused.status
    return None


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "10.0.0.7", "localhost."],
)  # fmt: skip
def test_this_machine_and_bare_addresses_are_served(host: str) -> None:
    assert refusal(guard(), Host=host) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil", "a b",
     "evil:80:80", "127.0.0.1/evil", "[::1", "[evil]", "0x7f.1", "xn--lcalhost-54a"],
)  # fmt: skip
def test_a_name_that_could_be_rebound_is_not(host: str) -> None:
    assert refusal(guard(), Host=host) == 403


def test_names_of_the_configuration_are_served() -> None:
    assert refusal(guard(allowed_hosts=["Gpu-Box.lan"]), Host="gpu-box.lan:8080") is None
    assert refusal(guard(Address("box", 80)), Host="box") is None
    assert refusal(guard(allowed_hosts=["*"]), Host="any.example") is None
    assert refusal(guard(Address(socket=Path("/run/a.sock"))), Host="any.example") is None


@given(st.text(), st.frozensets(st.text()))
def test_a_host_that_is_let_in_is_listed_or_an_address(host: str, listed: frozenset[str]) -> None:
    if host_allowed(host, listed) and host:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        bare = {part.strip("[]").lower().removesuffix(".") for part in (name, host)}
        assert bare & {one.removesuffix(".") for one in listed} or all(
            letter in "0123456789abcdef.:[]" for letter in host.lower()
        )


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8080", None),
        ("http://good.example", None),
        ("HTTP://good.example/", None),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:9999", 403),
        ("file://127.0.0.1:8080", 403),
        ("", 403),
    ],
)
def test_pages_of_other_origins_may_not_ask(origin: str, status: int | None) -> None:
    found = guard(allowed_origins=["http://good.example"])
    assert refusal(found, Host="127.0.0.1:8080", Origin=origin) == status


def test_only_allowed_origins_get_cors_headers() -> None:
    good = {"Origin": "http://good.example", "Access-Control-Request-Method": "POST"}
    found = guard(allowed_origins=["http://good.example"])
    asked = good | {"Access-Control-Request-Headers": "authorization, content-type"}
    answer = found.preflight(asked) or {}
    assert answer["Access-Control-Allow-Origin"] == "http://good.example"
    assert answer["Access-Control-Allow-Headers"] == "authorization, content-type"
    strange = found.preflight(good | {"Access-Control-Request-Headers": "a\r\nb: c"}) or {}
    assert "Access-Control-Allow-Headers" not in strange
    assert found.cors({"Origin": "http://127.0.0.1:8080"}) == {}
    assert found.preflight({"Origin": "http://good.example"}) is None


KEYED = ("first", "# no key", "", "  second  ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer first"}, None),
        ({"Authorization": "bearer second"}, None),
        ({"X_Api_Key": "second"}, None),
        ({}, 401),
        ({"Authorization": "first"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer # no key"}, 401),
        ({"Authorization": "Bearer firs"}, 401),
        ({"X_Api_Key": ""}, 401),
        ({"X_Api_Key": "\udcff"}, 401),
    ],
)
def test_one_of_the_keys_has_to_be_shown(headers: dict[str, str], status: int | None) -> None:
    assert refusal(guard(keys=KEYED), **headers) == status


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/health", None),
        ("/v1/health", None),
        ("/", None),
        ("/upstream/chat/", None),
        ("/index.html", None),
        ("/favicon.svg", None),
        ("/_app/immutable/nodes/0.Bx-7.js", None),
        ("/v1/models.js", 401),
        ("/slots/0.js", 401),
        ("/_app/../props/a.js", 401),
        ("/metrics", 401),
        ("/props", 401),
        ("/slots", 401),
        ("/_app/../props", 401),
        ("/upstream/chat/props", 401),
        ("/healthy", 401),
    ],
)
def test_without_a_key_there_is_health_and_the_page_that_asks_for_one(
    target: str, status: int | None
) -> None:
    assert refusal(guard(keys=KEYED), target) == status


@given(st.lists(st.text(min_size=1)), st.text())
def test_only_what_is_in_the_file_is_a_key(lines: list[str], shown: str) -> None:
    valid = {line.strip() for line in lines if not line.startswith("#")} - {""}
    assert Keys(lines).hold(shown) == (shown in valid)


def test_a_key_file_that_is_missing_or_empty_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="cannot read"):
        Keys.read(tmp_path / "none")
    (tmp_path / "empty").write_text("# nothing\n\n")
    with pytest.raises(ServeError, match="holds no key"):
        Keys.read(tmp_path / "empty")
    assert "first" not in repr(vars(Keys(KEYED)))


@given(pairs, pairs)
def test_no_header_of_the_connection_passes_in_either_direction(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    named = [("Connection", "X-Hop, keep-alive"), ("X-Hop", "1"), ("Upgrade", "h2c")]
    secret = [("Authorization", "Bearer x"), ("X-Api-Key", "x"), ("Content-Length", "3")]
    cors = [("Access-Control-Allow-Origin", "*"), ("access-control-allow-credentials", "true")]
    up = to_child([*before, *named, *secret, *after])
    down = to_client([*before, *named, *cors, *after], {"Vary": "Origin"})
    for passed in (up, down):
        assert not {"Connection", "X-Hop", "Upgrade", "Keep-Alive", "TE"} & set(passed)
    assert not {"Authorization", "X-Api-Key", "Content-Length", "Expect"} & set(up)
    assert not [name for name in down if name.lower().startswith("access-control-")]


def test_a_client_cannot_have_dropped_what_frames_its_message() -> None:
    passed = to_child([("Connection", "Host, Content-Type"), ("Host", "a"), ("Content-Type", "b")])
    assert set(passed) == {"Host", "Content-Type"}


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("http://evil/", []),
        ("evil:443", []),
        ("/", [("Host", "a"), ("Host", "b")]),
        ("/", [("Content-Length", "1"), ("Content-Length", "1")]),
        ("/", [("Content-Length", "1"), ("Transfer-Encoding", "chunked")]),
        ("/", [("Transfer-Encoding", "gzip, chunked")]),
        ("/", [("Upgrade", "WebSocket")]),
    ],
)
def test_what_two_servers_could_read_in_two_ways_is_refused(
    target: str, headers: list[tuple[str, str]]
) -> None:
    with pytest.raises(Refused):
        check_framing(target, CIMultiDict(headers))
    check_framing("/a?b", CIMultiDict([("Content-Length", "1"), ("Host", "a")]))
