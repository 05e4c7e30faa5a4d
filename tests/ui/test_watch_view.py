"""The watch screen, compared with the screens in `screens/` (AUTOSPEC_WRITE_SCREENS=1 writes)."""

from __future__ import annotations

import copy
import io
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from test_status_view import MODEL, REPORT

from autospec.errors import AutospecError, DaemonNotRunning
from autospec.ui.braille import curve
from autospec.ui.watch import Screen, sparks, watch

SCREENS = Path(__file__).parent / "screens"
COSTS = {
    "plain_ms": 60.0,
    "round_ms": [90.0, 100, 112, 125, 131, 140, 152, 160, 170, 140, 151, 166, 180, 195, 210, 222],
    "spread_ms": [1.0] * 16,
    "extrapolated": False,
}
EVENTS = [
    {
        "at": 17.0 * turn,
        "level": "warning" if turn % 4 == 3 else "info",
        "model": "coder",
        "text": f"keep: {30 + turn}.1 tokens/s predicted against 33.2 now: less than 5% to gain",
    }
    for turn in range(12)
]


@pytest.fixture(autouse=True)
def greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def report(**fields: Any) -> dict[str, Any]:
    """A model that drafts, with costs and twelve decisions; `fields` change it."""
    document = copy.deepcopy(REPORT) | {"events": EVENTS}
    model = document["models"][0] | {"costs": COSTS}
    model["live"]["by_position"] = [
        {"position": place + 1, "share": 0.97 * 0.93**place} for place in range(15)
    ]
    model |= fields
    document["models"] = [model]
    return document


def screen(document: dict[str, Any], seen: int = 70) -> Screen:
    """After `seen` answers in which the rate went up and down."""
    drawn = Screen(document)
    for turn in range(seen):
        for model in document["models"]:
            model["live"]["rate"] = 30 + 10 * math.sin(turn / 6)
        drawn.take(document)
    return drawn


def shown(drawn: Screen, width: int, height: int, **console: Any) -> str:
    out = io.StringIO()
    plain = Console(file=out, width=width, height=height, **console)
    plain.print(drawn.drawn(width, height, 50_000.0))
    return out.getvalue()


CASES: dict[str, Callable[[], Screen]] = {
    "drafting": lambda: screen(report()),
    "plain": lambda: screen(
        report(
            setting=MODEL["setting"] | {"type": "off", "n_max": 0, "sources": {"type": "auto"}},
            live=MODEL["live"] | {"rounds": 0, "drafted": 0, "acceptance": None, "by_position": []},
        ),
        seen=3,
    ),
    "failed": lambda: screen(
        report(state="failed", reason="the engine refused its command line", costs=None)
    ),
    "measuring": lambda: screen(
        REPORT
        | {
            "models": [],
            "events": EVENTS[:2],
            "starting": {"model": "coder", "what": "target, depth 0", "share": 0.3, "left": 87.0},
        }
    ),
    "two": lambda: screen(
        report() | {"models": [report()["models"][0], report(name="tiny", costs=None)["models"][0]]}
    ),
}


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (120, 30)])
@pytest.mark.parametrize("name", CASES)
def test_a_screen_looks_as_it_was_approved(name: str, width: int, height: int) -> None:
    text = shown(CASES[name](), width, height)
    approved = SCREENS / f"{name}-{width}x{height}.txt"
    if os.environ.get("AUTOSPEC_WRITE_SCREENS"):
        approved.parent.mkdir(exist_ok=True)
        approved.write_text(text)
    assert text == approved.read_text()


@settings(deadline=None)
@given(st.integers(20, 200), st.integers(4, 70), st.integers(0, 3))
def test_it_never_outgrows_the_terminal(width: int, height: int, models: int) -> None:
    document = report()
    document["models"] = document["models"] * models
    lines = shown(screen(document, seen=3), width, height).splitlines()
    assert max(map(len, lines), default=0) <= width
    assert len(lines) <= max(height, 2 + 5 * models)


@pytest.mark.parametrize("system", ["standard", "256", "truecolor"])
def test_with_colours_the_words_are_the_same(system: str) -> None:
    drawn = screen(report())
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=system)  # type: ignore[arg-type]
    with console.capture() as captured:
        console.print(drawn.drawn(80, 24, 50_000.0))
    coloured = captured.get()
    assert "\x1b[" in coloured
    assert "38;5" not in coloured  # the 16 colours that every terminal has, and a user's theme sets
    assert "38;2" not in coloured


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(screen(report()), 80, 24, force_terminal=True, color_system="standard")
    assert not any(f"\x1b[{code}" in text for code in (*range(30, 38), *range(90, 98)))


class Answers:
    """A daemon that gives these answers in turn; an error is raised."""

    def __init__(self, *answers: dict[str, Any] | AutospecError) -> None:
        self._answers = iter(answers)

    def __call__(self) -> dict[str, Any]:
        answer = next(self._answers)
        if isinstance(answer, AutospecError):
            raise answer
        return answer


def test_piped_it_is_a_line_a_model_and_turn() -> None:
    out = io.StringIO()
    gone = DaemonNotRunning("no autospec daemon is running")
    ask = Answers(report(), gone, report())
    watch(ask, Console(file=out, width=40), every=0.0, rounds=2)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert all("coder ready: 1 of 2 slots busy, 41.2 tokens/s a request" in one for one in lines)
    assert "\x1b" not in out.getvalue()


def test_a_daemon_that_is_away_is_waited_for_and_what_was_seen_stays() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    gone = DaemonNotRunning("no autospec daemon is running")
    watch(Answers(report(), gone, gone, report()), console, every=0.0, rounds=3)
    assert "no answer for 0 s; last seen:" in out.getvalue()
    with pytest.raises(DaemonNotRunning):
        watch(Answers(gone), console, every=0.0, rounds=1)


@given(st.lists(st.floats(0, 1e6), max_size=50), st.integers(1, 40))
def test_sparks_show_the_latest_and_fill_the_highest(values: list[float], width: int) -> None:
    drawn = sparks(values, width)
    latest = values[-width:]
    assert len(drawn) == (len(latest) if max(latest, default=0) > 0 else 0)
    if drawn:
        assert drawn[latest.index(max(latest))] == "█"


@given(st.lists(st.floats(0, 1e6), max_size=40), st.integers(1, 40), st.integers(1, 10), st.data())
def test_a_curve_fills_its_box_and_marks_one_place(
    values: list[float], width: int, height: int, data: st.DataObject
) -> None:
    mark = data.draw(st.integers(0, len(values) - 1)) if values else None
    lines = curve(values, width, height, mark)
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}
    seen = "".join(lines)
    assert seen.count("●") == (1 if max(values, default=0) > 0 else 0)
    assert all(char in " ●" or 0x2800 < ord(char) < 0x2900 for char in seen)


def test_a_rising_curve_runs_from_corner_to_corner() -> None:
    lines = curve([0.0, 1.0], 4, 2)
    assert lines[0][-1] != " "
    assert lines[1][0] != " "
    assert lines[0][0] == lines[1][-1] == " "
