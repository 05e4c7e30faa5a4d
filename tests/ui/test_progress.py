"""What is written about long work where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from autospec.calibration.run import Progress
from autospec.ui.progress import LINE_SECONDS, calibration_bar


def test_without_a_terminal_a_line_is_written_a_minute() -> None:
    out, now = io.StringIO(), 0.0
    with calibration_bar(Console(file=out), clock=lambda: now) as show:
        show(Progress("target: batches of 1", 0.0, 120.0))
        now = LINE_SECONDS - 1
        show(Progress("target: batches of 2", 0.2, 90.0))
        assert out.getvalue() == ""
        now = LINE_SECONDS
        show(Progress("target: batches of [4]", 0.5, 60.0))
        show(Progress("target: batches of 5", 0.6, 55.0))
        now = 2 * LINE_SECONDS
        show(Progress("code, row 3", 0.75))
    assert out.getvalue().splitlines() == [
        "50%, 60 s left at most, target: batches of [4]",
        "75%, code, row 3",
    ]


def test_where_lines_have_a_form_of_their_own_none_is_written() -> None:
    out, now = io.StringIO(), 0.0
    with calibration_bar(Console(file=out), lines=False, clock=lambda: now) as show:
        now = LINE_SECONDS
        show(Progress("target: batches of 1", 0.5, 60.0))
    assert out.getvalue() == ""


def test_on_a_terminal_a_bar_is_drawn_and_taken_away() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with calibration_bar(console) as show:
        show(Progress("target: batches of 1", 0.5, 60.0))
    assert "60 s left at most" in out.getvalue()
    assert "target: batches of 1" in out.getvalue()
    assert "\x1b[2K" in out.getvalue()
