"""The demo on the real pair, small: what it says has to hang together; speed is not tested."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from autospec.demo.run import Scale, run_demo
from autospec.ui.demo import outcome_json, print_outcome

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

ARMS = {"plain", "default", "tuned"}


@pytest.mark.real
def test_the_demo_calibrates_serves_compares_and_reports(
    engine: Engine, models: DemoModels, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    outcome = asyncio.run(
        run_demo(
            engine,
            models.target,
            models.draft,
            "hardware",
            Scale(budget=60.0, prompts=3),
            say=said.append,
            on_progress=lambda _progress: None,
        )
    )
    document: dict[str, Any] = json.loads(json.dumps(outcome_json(outcome), allow_nan=False))
    assert set(document["results"]) == ARMS
    assert {point["batch"] for point in document["cost_curve"]} >= {1, 2, 3, 4}
    assert document["results"]["plain"]["acceptance"] is None
    assert document["results"]["default"]["acceptance"] > 0.5
    assert document["results"]["tuned"]["ratio_vs_plain"] == pytest.approx(
        document["results"]["tuned"]["tokens_per_second"]
        / document["results"]["plain"]["tokens_per_second"]
    )
    low, high = document["intervals"]["ratio_vs_plain"]
    assert 0 < low <= document["ratio_vs_plain"] <= high
    scalar, thresholds = document["scalar"], document["thresholds"]
    assert scalar["type"] in {"draft-simple", "off"}
    assert (scalar["n_max"] > 0) == (scalar["type"] != "off")
    assert 1 <= len(thresholds) <= 16
    assert any("after traffic" in line or "chosen before" in line for line in said)
    print_outcome(outcome)
    shown = capsys.readouterr().out
    assert "autospec against plain decoding" in shown
    assert outcome.setting.reason.split(":")[0] in " ".join(shown.split())
