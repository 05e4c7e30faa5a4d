from __future__ import annotations

import copy
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from autospec.ui.status import bar, duration, status

LIVE: dict[str, Any] = {
    "busy": 1,
    "slots": 2,
    "depth": 312.4,
    "rate": 41.25,
    "mean_rate": 40.0,
    "tokens": 1200,
    "rounds": 300,
    "drafted": 1100,
    "accepted": 880,
    "acceptance": 0.8,
    "by_position": [{"position": 1, "share": 0.9}, {"position": 2, "share": 0.5}],
    "gain_predicted": 1.5,
    "gain_measured": 1.43,
}
MODEL: dict[str, Any] = {
    "name": "coder",
    "state": "ready",
    "reason": "as chosen",
    "for_seconds": 3725.0,
    "pid": 4242,
    "address": "http://127.0.0.1:8080",
    "fault": None,
    "degraded": [],
    "planned": None,
    "deaths": 0,
    "not_live": None,
    "restarts_for_tuning": 1,
    "setting": {
        "type": "draft-simple",
        "n_max": 6,
        "n_min": 0,
        "p_min": 0.35,
        "sources": {"type": "auto", "n_max": "pinned", "n_min": "auto", "p_min": "auto"},
        "why": "drafting up to 6 tokens: 42.0 tokens/s predicted against 28.0 plain (1.50x)",
        "thresholds": [0.11, 0.42, None],
        "predicted_rate": 42.0,
        "predicted_plain_rate": 28.0,
        "unsure": False,
        "live": False,
        "basis": {"depth": 300.0, "busy": 1, "rounds": 250},
        "unpinned": {
            "type": "draft-simple",
            "n_max": 9,
            "n_min": 0,
            "p_min": 0.2,
            "live": False,
            "predicted_rate": 46.2,
            "loss": 1 - 42.0 / 46.2,
        },
    },
    "live": LIVE,
    "calibration": {
        "made_at": 0.0,
        "seconds": 118.0,
        "depths": [0, 512],
        "max_draft": 16,
        "rounds": 120,
        "skipped": [],
        "remarks": [],
        "unsure": False,
    },
    "decision": {"action": "keep", "reason": "still the best one", "rate": 42.0, "better": 42.0},
}
REPORT: dict[str, Any] = {
    "version": "0.1.0",
    "daemon": {"pid": 4200, "for_seconds": 4000.0, "config": "/etc/autospec/autospec.toml"},
    "engine": {
        "path": "/opt/llama/llama-server",
        "version": "0.6.0",
        "identity": "83df4506aabbccdd",
        "build_date": "2026-11-30",
        "applier": {"name": "scalar", "why": "settings are flags at start"},
    },
    "hardware": {
        "cpu": {"model": "A CPU", "usable": 8},
        "memory": {"total": 64 * 2**30},
        "gpus": [{"name": "A GPU"}, {"name": None}],
    },
    "starting": None,
    "models": [MODEL],
    "earlier_events": [
        {"at": 0.0, "level": "error", "model": None, "text": f"long ago {turn}"}
        for turn in range(9)
    ],
    "events": [{"at": 0.0, "level": "warning", "model": "coder", "text": "something happened"}],
}


def shown(report: dict[str, Any], width: int = 80, **console: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=width, **console).print(status(report))
    return out.getvalue()


def changed(**fields: Any) -> dict[str, Any]:
    report = copy.deepcopy(REPORT)
    report["models"][0].update(fields)
    return report


def test_a_reader_sees_setting_source_reason_and_gain() -> None:
    text = shown(REPORT)
    for words in (
        "ready for 1 h 2 min, pid 4242, http://127.0.0.1:8080",
        "draft-simple auto",
        "n_max 6 pinned",
        "p_min 0.35 auto",
        "drafting up to 6 tokens",
        "0.11 0.42",
        "1 of 2 slots busy, depth 312, 41.2 tokens/s",
        "80% of 1100 tokens",
        "1.50x predicted, 1.43x measured",
        "A GPU; unnamed GPU; A CPU, 8 cores; 64 GiB",
        "something happened",
        "long ago 8",
        "long ago 4",
    ):
        assert words in text
    assert "long ago 3" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_the_terminal(width: int) -> None:
    assert max(map(len, shown(REPORT, width).splitlines())) <= width


def test_without_colour_there_are_no_escapes() -> None:
    assert "\x1b" not in shown(REPORT)
    assert "\x1b" in shown(REPORT, force_terminal=True, color_system="standard")


def test_plain_decoding_shows_one_word_and_its_source() -> None:
    off = {**MODEL["setting"], "type": "off", "n_max": 0, "sources": {"type": "pinned"}}
    text = shown(changed(setting={**off, "thresholds": None, "unpinned": None}))
    assert "off pinned" in text
    assert "n_max" not in text


def test_what_is_pinned_is_shown_with_what_would_be_chosen_and_what_it_costs() -> None:
    text = shown(changed(), 200)
    assert "n_max 6 pinned" in text
    assert "without pins" in text
    free = "draft-simple n_max 9 p_min 0.2: 46.2 tokens/s predicted"
    assert f"{free}; the pins cost 9%" in text


@pytest.mark.parametrize(
    ("free", "words"),
    [
        ({"loss": None}, "what is pinned cannot be predicted"),
        ({"loss": 0.001}, "the pins cost nothing"),
        ({"loss": -0.04}, "the pins gain 4%"),
        ({"type": "off"}, "plain decoding: 46.2 tokens/s predicted"),
        ({"live": True}, "p_min 0.2, live: 46.2"),
    ],
)
def test_the_cost_of_pins_is_said_in_words(free: dict[str, Any], words: str) -> None:
    setting = MODEL["setting"] | {"unpinned": MODEL["setting"]["unpinned"] | free}
    assert words in shown(changed(setting=setting), 200)


def test_without_pins_nothing_is_compared() -> None:
    assert "without pins" not in shown(changed(setting=MODEL["setting"] | {"unpinned": None}))


def test_a_failed_model_says_why() -> None:
    text = shown(changed(state="failed", pid=None, reason="the engine refused its command line"))
    assert "failed" in text
    assert "the engine refused its command line" in text


def test_what_is_measured_at_the_start_is_shown_with_the_time_left() -> None:
    report = copy.deepcopy(REPORT)
    report["models"] = []
    report["starting"] = {"model": "coder", "what": "target, depth 0", "share": 0.3, "left": 87.0}
    assert "starting coder: target, depth 0; 87 s left at most" in shown(report)


def test_a_fault_is_visible() -> None:
    fault = "llama-server serves without speculation: the draft's vocabulary does not fit"
    assert "serves without speculation" in shown(changed(fault=fault))


def test_what_is_unknown_is_said_and_never_guessed() -> None:
    report = copy.deepcopy(REPORT)
    report["hardware"] = {
        "cpu": {"model": None, "usable": None},
        "memory": {"total": None},
        "gpus": [],
    }
    report["models"][0].update(
        calibration=None,
        decision=None,
        live={
            **LIVE,
            "depth": None,
            "rate": None,
            "tokens": 0,
            "rounds": 0,
            "gain_measured": None,
            "gain_predicted": None,
        },
    )
    text = shown(report)
    assert "unknown CPU, unknown cores" in text
    assert "no tokens yet" in text
    assert "None" not in text


@given(st.floats(-1, 2), st.integers(1, 40))
def test_a_bar_has_its_width_and_is_full_only_at_the_top(share: float, width: int) -> None:
    drawn = bar(share, width)
    assert len(drawn) == width
    assert (drawn == "█" * width) == (round(min(1, max(0, share)) * width * 8) == width * 8)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (187, "3 min 7 s"),
        (7500, "2 h 5 min"),
        (349_200, "4 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_durations_use_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words
