"""The page, the pictures and the tables of a report: all is shown, nothing breaks out."""

from __future__ import annotations

from typing import Any

import pytest

from autospec.bench import pictures
from autospec.bench.html import page
from autospec.errors import UsageError
from autospec.ui.bench import print_report

EVIL = "<script>alert('x')</script>"
PNG = b"\x89PNG"


def figures(rate: float, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tokens_per_second": rate,
        "low": rate * 0.9,
        "high": rate * 1.1,
        "ms_per_token": 1000 / rate,
        "acceptance": None,
        "diverged": 1,
        "compared": 4,
    }
    for against in ("plain", "default", "best_static"):
        found |= {f"ratio_vs_{against}": rate / 10, f"interval_vs_{against}": [0.9, 1.2]}
    return found | more


def report(**more: Any) -> dict[str, Any]:
    about = {
        "workload": "code",
        "rows": 4,
        "rows_used": 3,
        "disturbed": 1,
        "disturbances": [EVIL],
        "context_tokens": 60.0,
    }
    document: dict[str, Any] = {
        "version": "0",
        "arms": {
            "plain": {"code": figures(10)},
            "live": {"code": figures(15, low=None, high=None, acceptance=0.7)},
            "scalar": {},
        },
        "cells": {"code": about, "empty": about | {"context_tokens": None}},
        "overall": {
            "scalar": {"plain": {"value": 1.83, "low": None, "high": None}},
            "live": {
                "plain": {"value": 1.87, "low": 1.61, "high": 2.12},
                "scalar": {"value": 1.02, "low": 0.96, "high": 1.09},
            },
        },
        "failed": {"pr17034": EVIL},
        "calibration_cost": {"calibration": {"seconds": 60.0}, "sweep": None},
        "prediction_error": 0.08,
        "prediction": {
            "round_cost": {"headline": 0.08, "rounds": 300},
            "rate": {"live": 0.1, "scalar": None},
            "round_pairs": [[100.0, 110.0], [90.0, 80.0]],
        },
        "goals": [
            {"goal": EVIL, "value": 1.2, "bound": 1.1, "at_most": False, "met": True},
            {"goal": "other", "value": None, "bound": 0.05, "at_most": True, "met": None},
        ],
        "acceptance_by_position": [{"position": 1, "share": 0.9, "drafts": 10}],
        "operating_points": [
            {"batch": 4, "busy": 1, "depth": 0, "count": 5, "verify_ms": 90.0},
        ],
        "thresholds": {"autospec": [0.4, None], "pr17034": [0.9, 0.5]},
        "curves": [
            {"batch": b, "depth": 0, "slots": 1, "ms": 50.0 + b, "spread_ms": 1.0} for b in (1, 2)
        ],
        "finished": False,
        "machine": {"cpu": {"model": "a chip"}, "gpus": []},
        "engine": {"version": "1"},
        "models": {"target": EVIL, "draft": "d.gguf"},
        "command": f"autospec bench {EVIL}",
    }
    return document | more


def test_the_page_holds_the_figures_and_runs_nothing() -> None:
    text = page(report(), [(EVIL, PNG)])
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    for shown in ("15.0", "1.50", "70%", "1 of 4", "unknown", "8.0%", "1.87", "1.61–2.12"):
        assert shown in text
    assert "data:image/png;base64,iVBORw==" in text


def test_every_picture_is_drawn_where_there_are_figures() -> None:
    drawn = dict(pictures.draw(report()))
    assert len(drawn) == 5
    assert all(png.startswith(PNG) for png in drawn.values())
    bare = report(acceptance_by_position=[], operating_points=[])
    bare["prediction"] = {"round_pairs": []}
    assert len(pictures.draw(bare)) == 3


def test_without_matplotlib_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "available", lambda: False)
    with pytest.raises(UsageError) as error:
        pictures.draw(report())
    assert "autospec[bench]" in (error.value.hint or "")
    assert "data:image" not in page(report())


def test_the_tables_say_what_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report())
    shown = capsys.readouterr().out
    for text in ("code: 3 rows", "1 disturbed", "pr17034 took no part", "budget ended", "1/4"):
        assert text in shown
    assert "a round's cost 8.0%" in shown
    assert "1.87 (1.61–2.12)" in shown
    assert "1.02 (0.96–1.09)" in shown
