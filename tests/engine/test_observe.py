import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine import observe
from autospec.engine.observe import (
    Props,
    SlotState,
    Timings,
    parse_health,
    parse_props,
    parse_slots,
    parse_timings,
)
from autospec.errors import EngineOutputError

IDLE = {"id": 0, "n_ctx": 512, "speculative": True, "is_processing": False}
BUSY = {
    "id": 1,
    "n_ctx": 512,
    "speculative": True,
    "is_processing": True,
    "id_task": 2,
    "n_prompt_tokens": 32,
    "n_prompt_tokens_processed": 4,
    "n_prompt_tokens_cache": 0,
    "params": {"speculative.types": "none,draft-simple"},
    "next_token": [{"has_next_token": True, "n_remain": 176, "n_decoded": 24}],
}
TIMINGS = {
    "cache_n": 0,
    "prompt_n": 33,
    "prompt_ms": 644.367,
    "predicted_n": 40,
    "predicted_ms": 19771.9,
    "draft_n": 95,
    "draft_n_accepted": 13,
}


def test_reads_slots_of_a_real_build():
    assert parse_slots(json.dumps([IDLE, BUSY])) == [
        SlotState(id=0, n_ctx=512, speculative=True, processing=False, depth=None),
        SlotState(id=1, n_ctx=512, speculative=True, processing=True, depth=28, task=2),
    ]


def test_the_depth_counts_what_is_cached_but_not_what_waits():
    long = BUSY | {
        "n_prompt_tokens": 400,
        "n_prompt_tokens_processed": 100,
        "n_prompt_tokens_cache": 50,
        "next_token": [{"n_decoded": 0}],
    }
    assert parse_slots(json.dumps([long]))[0].depth == 150


def test_the_depth_never_exceeds_the_context():
    shifted = BUSY | {"next_token": [{"n_decoded": 9000}]}
    assert parse_slots(json.dumps([shifted]))[0].depth == 512


def test_reads_slots_of_older_builds():
    old = {"id": 0, "n_ctx": 512, "is_processing": True, "n_past": 77, "next_token": {}}
    assert parse_slots(json.dumps([old]))[0] == SlotState(0, 512, None, True, 77)


@pytest.mark.parametrize(
    ("slots", "says"),
    [
        ({"error": {"code": 501}}, "no list"),
        ([7], "no JSON object"),
        ([{"n_ctx": 5}], "id is no number"),
        ([IDLE | {"n_ctx": -1}], "n_ctx cannot be"),
        ([IDLE | {"n_ctx": 1.5}], "n_ctx is not whole"),
        ([IDLE | {"n_ctx": True}], "n_ctx is no number"),
        ([IDLE | {"n_ctx": 10**400}], "n_ctx cannot be"),
        ([IDLE | {"speculative": "yes"}], "neither true nor false"),
        ([IDLE | {"is_processing": 1}], "neither true nor false"),
    ],
)
def test_refuses_slots_that_cannot_be(slots, says):
    with pytest.raises(EngineOutputError, match=says):
        parse_slots(json.dumps(slots))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"\xff\xfe",
        b"[NaN]",
        b"[Infinity]",
        b"[" * 100_000,
        b"9" * 5000,
        b"x" * 10_000_000,
    ],
)
@pytest.mark.parametrize("parse", [parse_slots, parse_props, parse_timings])
def test_refuses_bodies_that_are_no_json(parse, body):
    with pytest.raises(EngineOutputError) as caught:
        parse(body)
    assert len(str(caught.value)) < 600


def test_refuses_an_endless_body(monkeypatch):
    monkeypatch.setattr(observe, "_BODY_LIMIT", 100)
    with pytest.raises(EngineOutputError, match="101 bytes"):
        parse_slots(b" " * 101)


def test_reads_props_and_leaves_unknown_what_is_not_there():
    real = {
        "default_generation_settings": {"n_ctx": 512, "params": {"speculative.types": "none"}},
        "total_slots": 2,
        "model_path": "/models/m.gguf",
        "build_info": "b0-unknown",
    }
    assert parse_props(json.dumps(real)) == Props(2, 512, "/models/m.gguf", "b0-unknown")
    assert parse_props("{}") == Props(None, None, None, None)
    odd = {"default_generation_settings": [], "model_path": 5}
    assert parse_props(json.dumps(odd)) == Props(None, None, None, None)


def test_reads_the_timings_of_a_completion():
    timings = parse_timings(json.dumps({"content": "…", "timings": TIMINGS}))
    assert timings == Timings(33, 644.367, 40, 19771.9, cached_n=0, drafted=95, accepted=13)
    assert timings.tokens_per_second == pytest.approx(2.0231, abs=1e-4)


def test_a_failed_request_has_no_timings():
    assert parse_timings('{"error": {"code": 400}}') is None


def test_without_speculation_nothing_was_drafted():
    plain = {key: value for key, value in TIMINGS.items() if not key.startswith("draft")}
    timings = parse_timings(json.dumps({"timings": plain}))
    assert timings is not None
    assert (timings.drafted, timings.accepted) == (None, None)


def test_a_prompt_from_the_cache_is_no_measurement():
    cached = TIMINGS | {"cache_n": 34}
    assert parse_timings(json.dumps({"timings": cached})).mostly_cached
    assert not parse_timings(json.dumps({"timings": TIMINGS})).mostly_cached


def test_no_time_gives_no_rate():
    timings = parse_timings(json.dumps({"timings": TIMINGS | {"predicted_ms": 0}}))
    assert timings.tokens_per_second is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"predicted_ms": -1}, "predicted_ms cannot be"),
        ({"predicted_ms": "1"}, "predicted_ms is no number"),
        ({"predicted_n": 1e16}, "predicted_n cannot be"),
        ({"draft_n_accepted": 96}, "more tokens accepted than drafted"),
    ],
)
def test_refuses_timings_that_cannot_be(changes, says):
    with pytest.raises(EngineOutputError, match=says):
        parse_timings(json.dumps({"timings": TIMINGS | changes}))


@pytest.mark.parametrize(
    ("status", "body", "health"),
    [
        (200, b'{"status":"ok"}', "ok"),
        (
            503,
            b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
            "loading",
        ),
        (503, b'{"status": "loading model"}', "loading"),
        (503, "\ufffd", "failing"),
        (500, b"loading", "failing"),
        (404, b"\xff", "failing"),
    ],
)
def test_health_is_ok_loading_or_failing(status, body, health):
    assert parse_health(status, body) == health


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from([*IDLE, *BUSY, *TIMINGS, "timings", "default_generation_settings"]),
            inner,
        )
    ),
)


@given(json_values)
def test_any_json_gives_plain_data_or_a_clean_refusal(value):
    for parse in (parse_slots, parse_props, parse_timings):
        try:
            seen = parse(json.dumps(value))
        except EngineOutputError as error:
            seen = error.line
        assert seen is None or repr(seen)
