"""`autospec explain`: the document, the words, and who answers."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from rich.console import Console
from test_tuner import DRAFTED, PLAIN_MS, Traffic
from told import explained, model

from autospec.daemon.explaining import answer
from autospec.daemon.memory import Memory
from autospec.errors import UsageError
from autospec.state.recorder import Recorder
from autospec.state.store import Row, Store, Table
from autospec.ui.explain import explanation


def test_the_page_is_tested_with_what_is_explained() -> None:
    real, like = Traffic().tuner.explained(), explained(model("chat"))
    assert set(like) <= set(real)
    for one in ("applier", "setting"):
        assert set(real[one]) <= set(like[one])
    assert set(like["options"][0]) == set(real["options"][0])


def words(*models: dict[str, Any], running: bool = True) -> str:
    document = {"running": running, "models": list(models)}
    json.dumps(document, allow_nan=False)
    shown = io.StringIO()
    Console(width=400, file=shown).print(explanation(document))
    return shown.getvalue()


def test_before_any_traffic_the_calibration_speaks() -> None:
    traffic = Traffic()
    document = traffic.tuner.explained()
    assert document["setting"]["n_max"] == traffic.setting.speculation.n_max
    assert not document["present"]["seen"]
    by_name = {one["name"]: one for one in document["options"]}
    assert by_name["plain decoding"]["rate"] == pytest.approx(1000 / PLAIN_MS, rel=0.02)
    rows = document["curve"]["rows"]
    assert [row["drafted"] for row in rows] == list(range(DRAFTED + 1))
    assert rows[3]["round_ms"] == pytest.approx(rows[3]["draft_ms"] + rows[3]["verify_ms"])
    assert document["applier"]["name"] == "scalar"
    assert 0.0 <= document["applier"]["loss"] < 0.5
    told = words(document, running=False)
    assert "No daemon runs" in told
    assert "none seen yet" in told
    assert "nothing yet under this setting" in told
    assert "settings are flags at start" in told


def test_after_a_way_back_it_tells_what_was_measured_and_why() -> None:
    traffic = Traffic()
    traffic.flow(60.0, accepted=1, round_ms=3.0 * PLAIN_MS)
    document = traffic.tuner.explained(traffic.setting)
    assert document["setting"]["type"] == "off"
    (trial,) = document["trials"]
    assert trial["over_plain"] == pytest.approx(2 / 3, rel=0.05)
    latest = document["decisions"][0]
    back = next(one for one in document["decisions"] if one["action"] == "restart without a draft")
    assert "measured slower than plain decoding" in back["reason"]
    assert {one["name"] for one in back["options"]} >= {"plain decoding"}
    told = words(document)
    assert "x of plain decoding at 1 busy slot" in told
    assert "restart without a draft" in told
    assert latest["at"] >= back["at"]


def test_a_restart_that_paid_shows_its_sum() -> None:
    traffic = Traffic()
    traffic.flow(240.0, accepted=2, round_ms=67.0)
    document = traffic.tuner.explained(traffic.setting)
    paid = next(one for one in document["decisions"] if one["action"] == "restart now")
    assert paid["arithmetic"]["gain_tokens"] > paid["arithmetic"]["price_tokens"]
    assert paid["arithmetic"]["pays"]
    told = words(document)
    assert "at work 100% of the time" in told
    assert "x of what was predicted" in told


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"draft": None}, "there is no draft model"),
        ({"type": "off"}, "off by the configuration"),
        ({"type": "ngram-mod"}, "type ngram-mod is pinned"),
    ],
)
def test_where_nothing_is_weighed_it_says_why(config: dict[str, Any], reason: str) -> None:
    document = Traffic(**config).tuner.explained()
    assert not document["weighed"]
    assert reason in words(document)


def test_decisions_of_an_earlier_life_are_told_and_strange_ones_passed_over() -> None:
    recorder = Recorder(Store.open())
    memory = Memory(recorder)
    first = Traffic(memory=memory)
    first.flow(70.0, accepted=1, round_ms=3.0 * PLAIN_MS)
    recorder.put(Row(Table.DECISIONS, "model", '{"format": 1, "action": 3}'))
    assert recorder.flush()
    document = Traffic(memory=memory).tuner.explained()
    actions = [one["action"] for one in document["decisions"]]
    assert "restart without a draft" in actions
    assert "restart without a draft" in words(document)
    assert recorder.close()


def test_the_daemon_answers_for_one_model_or_for_all() -> None:
    traffic = Traffic()
    tuned = {"chat": (traffic.tuner, traffic.setting)}
    for request in ({"op": "explain"}, {"op": "explain", "model": "chat"}):
        document = asyncio.run(answer(request, tuned))
        assert document["running"]
        assert len(document["models"]) == 1
    for name in ("other", 7, ["chat"]):
        with pytest.raises(UsageError):
            asyncio.run(answer({"op": "explain", "model": name}, tuned))
