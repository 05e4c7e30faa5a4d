from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.daemon.front.routing import Page, Route, UnknownModel, named, route
from autospec.daemon.front.scan import MOST_DEPTH, TooComplex, form_model, scan

ONE, TWO = ("chat",), ("chat", "code")
names = st.lists(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), min_size=1, unique=True
)
targets = st.text(st.characters(min_codepoint=33, max_codepoint=126)).map("/".__add__)
methods = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])


@pytest.mark.parametrize(
    ("method", "target", "names", "expected"),
    [
        ("POST", "/v1/completions?a=b", ONE, Route(Page.CHILD, "/v1/completions?a=b", "chat")),
        ("POST", "/v1/completions", TWO, Route(Page.CHILD, "/v1/completions", by_body=True)),
        ("GET", "/props?model=code", TWO, Route(Page.CHILD, "/props?model=code", "code")),
        ("GET", "/slots", TWO, Route(Page.CHILD, "/slots", "chat")),
        ("GET", "/", ONE, Route(Page.CHILD, "/", "chat")),
        ("GET", "/", TWO, Route(Page.INDEX, "/")),
        ("GET", "/v1/models", TWO, Route(Page.MODELS, "/v1/models")),
        ("GET", "/metrics", ONE, Route(Page.METRICS, "/metrics")),
        ("GET", "/health", TWO, Route(Page.HEALTH, "/health")),
        ("POST", "/upstream/code/v1/x?y", TWO, Route(Page.CHILD, "/v1/x?y", "code")),
        ("GET", "/upstream/code/metrics", TWO, Route(Page.CHILD, "/metrics", "code")),
        ("GET", "/upstream/code/health", TWO, Route(Page.HEALTH, "/health", "code")),
        ("GET", "/upstream/code", TWO, Route(Page.MOVED, "/upstream/code/", "code")),
        ("GET", "/upstream/code//x", TWO, Route(Page.CHILD, "//x", "code")),
        ("GET", "/autospec", ONE, Route(Page.MOVED, "autospec/")),
        ("GET", "/autospec/?a", TWO, Route(Page.SCREEN, "/autospec/?a")),
        ("POST", "/autospec/x", ONE, Route(Page.SCREEN, "/autospec/x")),
        ("GET", "/autospecs", ONE, Route(Page.CHILD, "/autospecs", "chat")),
        ("GET", "/upstream/code/autospec/", TWO, Route(Page.SCREEN, "/autospec/", "code")),
        ("GET", "/upstream/code/autospec", TWO, Route(Page.MOVED, "autospec/", "code")),
        ("GET", "/upstream/autospec/v1/x", ("autospec",), Route(Page.CHILD, "/v1/x", "autospec")),
    ],
)  # fmt: skip
def test_where_a_request_goes(
    method: str, target: str, names: tuple[str, ...], expected: Route
) -> None:
    assert route(method, target, names) == expected


def test_an_address_of_one_model_is_as_the_childs_own() -> None:
    for target in ("/metrics", "/v1/models", "/", "/upstream/chat/x", "/props?model=chat"):
        assert route("GET", target, TWO, "code") == Route(Page.CHILD, target, "code")


@pytest.mark.parametrize("target", ["/upstream/", "/upstream/x/y", "/upstream/x", "/props?model=x"])
def test_a_name_that_is_none_is_unknown(target: str) -> None:
    with pytest.raises(UnknownModel):
        route("GET", target, TWO)


def test_a_body_without_a_name_is_for_the_first_model() -> None:
    assert [named(None, TWO), named("code", TWO)] == ["chat", "code"]
    with pytest.raises(UnknownModel):
        named("Code", TWO)


@given(methods, targets, names)
def test_every_request_goes_somewhere_that_exists(
    method: str, target: str, names: list[str]
) -> None:
    try:
        found = route(method, target, names)
    except UnknownModel:
        return
    assert found.model is None or found.model in names
    assert found.path.startswith("/")
    assert (found.page is Page.CHILD and found.model is None) == found.by_body


@given(names, targets)
def test_the_rest_of_an_upstream_path_is_what_the_child_sees(names: list[str], target: str) -> None:
    found = route("DELETE", f"/upstream/{names[-1]}{target}", names)
    assert (found.path, found.model) == (target, names[-1])


keys = st.sampled_from(["model", "url", "a", '"', "\\"]) | st.text()
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
objects = st.dictionaries(st.text() | st.just("model"), json_values, max_size=6)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@given(objects, st.integers(1, 9), st.booleans())
def test_the_model_of_a_body_is_found_however_it_is_cut(
    body: dict[str, Any], size: int, ascii_only: bool
) -> None:
    data = json.dumps(body, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = scan(cut(data, size)).model
    model = body.get("model")
    expected = model if isinstance(model, str) else None
    if expected is None or (len(expected) < 80 and ascii_only):
        assert found == expected
    assert scan([data]).model == found


@given(st.binary(max_size=200), st.integers(1, 9), st.booleans())
def test_no_junk_is_too_much_for_the_scanner(data: bytes, size: int, media: bool) -> None:
    assert scan(cut(data, size), media=media) == scan([data], media=media)
    form_model(cut(data, size))


REMOTE = [
    {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]}]},
    {"messages": [{"content": [{"type": "image_url", "image_url": "HTTPS://a/b"}]}]},
    {"input": [{"type": "input_image", "image_url": "https://a/b"}]},
    {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": "http://a"}}]}]},
    {"messages": [{"content": [{"input_audio": {"data": "file:///etc/passwd"}}]}]},
    {"messages": [{"content": [{"image_url": {"url": " ftp://x"}}]}]},
    {"messages": [{"content": [{"image_url": {"a": [{"b": 1}], "url": "http://x"}}]}]},
]
LOCAL = [
    {"messages": [{"content": "see http://a/b"}, {"image_url": {"url": "data:image/png;base64,"}}]},
    {"tools": [{"url": "http://a", "parameters": {"image_url": {"description": "http://"}}}]},
    {"model": "http://a", "prompt": ["http://a"]},
]


@pytest.mark.parametrize("body", REMOTE)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_media_from_elsewhere_are_seen(body: dict[str, Any], size: int) -> None:
    assert scan(cut(json.dumps(body).encode(), size), media=True).remote
    assert scan([json.dumps(body).encode()]).remote is None or size


def test_an_escaped_address_is_seen_too() -> None:
    written = rb'{"image\u005furl": {"url": "\u0068ttp:\/\/a"}}'
    assert scan(cut(written, 3), media=True).remote == "http://a"


@pytest.mark.parametrize("body", LOCAL)
def test_addresses_in_text_and_media_inside_the_request_pass(body: dict[str, Any]) -> None:
    assert scan([json.dumps(body).encode()], media=True).remote is None


def test_a_body_that_is_too_deep_or_of_too_many_parts_is_refused() -> None:
    with pytest.raises(TooComplex):
        scan([b"[" * (MOST_DEPTH + 2)])
    with pytest.raises(TooComplex):
        scan([b"[]" * 300_000])


def test_a_string_of_megabytes_is_passed_over_and_not_kept() -> None:
    pieces = [b'{"prompt": "', *[b"x\\" + b"n" * (1 << 18)] * 64, b'", "model": "code"}']
    assert scan(pieces).model == "code"


def test_the_model_of_a_form_is_found() -> None:
    form = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\xff\r\n'
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ncode\r\n--x--\r\n'
    )
    assert form_model([form]) == form_model(cut(form, 50)) == "code"
    assert form_model([form.replace(b'"model"', b'"other"')]) is None
