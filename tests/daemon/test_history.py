from __future__ import annotations

from typing import Any

from autospec.daemon.history import KEPT, History


def model(name: str, rate: float | None) -> dict[str, Any]:
    return {
        "name": name,
        "state": "ready",
        "live": {"busy": 1, "depth": 100.0, "rate": rate, "acceptance": 0.5},
        "setting": {"predicted_plain_rate": 20.0, "basis": {"busy": 2}},
    }


def test_it_keeps_an_hour_of_each_model_oldest_first() -> None:
    history = History()
    for second in range(KEPT + 10):
        history.sample([model("a", float(second)), model("b", None)], float(second))
    kept = history.to_json()
    assert list(kept) == ["a", "b"]
    assert [sample["rate"] for sample in kept["a"]] == [float(s) for s in range(10, KEPT + 10)]
    assert {sample["rate"] for sample in kept["b"]} == {None}
    assert {sample["plain"] for sample in kept["a"]} == {10.0}


def test_a_model_that_is_gone_is_forgotten() -> None:
    history = History()
    history.sample([model("a", 1.0), model("b", 1.0)], 0.0)
    history.sample([model("b", 2.0)], 2.0)
    assert list(history.to_json()) == ["b"]
