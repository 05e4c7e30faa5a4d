"""What is decided on recorded rounds, in counts: the figures of the regression guard.

Each case is a cost curve and recorded rounds. What the daemon chooses from one half of the rounds
plays the other half, and the cost of that is summed from times that are kept in the golden file,
so that no change of the code moves the yardstick. To renew the file after a change that is meant
to decide otherwise:

    python tests/bench/decisions.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autospec.bench.replay import shortened
from autospec.calibration.curves import read_curves, read_rounds, read_steps
from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig
from autospec.daemon.choose import Model, choose, survival_of
from autospec.tuning.cost import CostSurface, StepTime
from autospec.tuning.lab import recorded_cost
from autospec.tuning.observations import Round
from autospec.tuning.replay import Cut, Trace, Triple, cut_scalar, cut_vector, tokens

DATA = Path(__file__).parent.parent / "data"
GOLDEN = DATA / "decisions.json"
TEXTS = ("same_weights", "one_layer_dropped", "poor")
DEMO = "the demo's pair"
N_MAX = 12
DRAFT_MS = 5.0
PLAIN_MS = 100.0

Yardstick = dict[str, Any]


def rounds_of(text: str) -> list[Round]:
    """Recorded rounds. The poor ones are the good ones with the first half of every draft's
    accepted tokens taken away: a draft that is sure of itself and wrong."""
    if text != "poor":
        return read_rounds(DATA / f"trace_draft_{text}.jsonl")
    return [replace(one, accepted=one.accepted // 6) for one in rounds_of("one_layer_dropped")]


def curves() -> dict[str, tuple[StepTime, ...]]:
    """Target steps of the four seed curves, and of the demo's pair on a CPU."""
    found = {}
    for curve in read_curves(DATA / "seed_curves.json"):
        found[curve.name] = tuple(
            StepTime(b, 0, PLAIN_MS * y * b, 1.0, 5)
            for b, y in enumerate(curve.relative_cost[: N_MAX + 1], start=1)
        )
    found[DEMO] = tuple(read_steps(DATA / "batched_bench_pps_not_unified.jsonl"))
    return found


def draft_steps(name: str) -> tuple[StepTime, ...]:
    base = 12.0 if name == DEMO else DRAFT_MS
    return tuple(StepTime(b, 0, base + (b - 1) * base / 20, 0.1, 5) for b in range(1, N_MAX + 2))


def yardstick(name: str, target: Sequence[StepTime]) -> Yardstick:
    """Times of rounds, to be kept: they judge every later decision."""
    surface = CostSurface.from_steps(target)
    if name == DEMO:
        cost = recorded_cost(rounds_of("same_weights"), surface)
        draft, verify = cost.draft_ms.tolist(), cost.verify_ms.tolist()
    else:
        draft = [DRAFT_MS * k for k in range(N_MAX + 1)]
        verify = [surface.step(k + 1).value + DRAFT_MS for k in range(N_MAX + 1)]
    return {"plain_ms": surface.step(1).value, "draft_ms": draft, "verify_ms": verify}


def model_of(
    name: str, target: tuple[StepTime, ...], rounds: Sequence[Round], *, live: bool
) -> Model:
    times = list(rounds) if name == DEMO else shortened(rounds, N_MAX)
    calibration = Calibration(
        key="k",
        model="m",
        made_at=0.0,
        seconds=60.0,
        engine_version="v",
        max_draft=N_MAX,
        target=target,
        draft=draft_steps(name),
        rounds=tuple(times),
    )
    config = ModelConfig.model_validate({"path": "/t.gguf", "draft": "/d.gguf", "context": 256})
    return Model(config, 256, calibration, live=live)


def decide(
    name: str, target: tuple[StepTime, ...], rounds: Sequence[Round], *, live: bool
) -> Cut | None:
    """What is chosen from the even rounds does this with the odd ones; None is plain decoding."""
    model = model_of(name, target, rounds[::2], live=live)
    setting = choose(model)
    if not setting.speculation.on:
        return None
    unseen = Trace.of(rounds[1::2])
    if live:
        assert setting.plan is not None
        return cut_vector(unseen, survival_of(model), setting.plan.policy)
    speculation = setting.speculation
    return cut_scalar(unseen, Triple(speculation.n_max, speculation.n_min, speculation.p_min))


def judge(cut: Cut | None, rounds: Sequence[Round], measure: Yardstick) -> dict[str, Any]:
    """Counts over the odd rounds, and their cost in ms a token."""
    unseen = Trace.of(rounds[1::2])
    if cut is None:
        return {"speculate": False, "ms_per_token": measure["plain_ms"]}
    made = int(tokens(unseen, cut).sum())
    spent = np.array(measure["draft_ms"])[cut.paid] + np.array(measure["verify_ms"])[cut.kept]
    return {
        "speculate": True,
        "rounds": len(unseen),
        "drafted": int(cut.kept.sum()),
        "paid": int(cut.paid.sum()),
        "accepted": int(np.minimum(unseen.accepted, cut.kept).sum()),
        "ms_per_token": float(spent.sum()) / made,
    }


def every_case(measures: dict[str, Yardstick]) -> dict[str, dict[str, Any]]:
    """Counts by `curve, text, applier`."""
    found = {}
    for name, target in curves().items():
        for text in TEXTS:
            rounds = rounds_of(text)
            if name != DEMO:
                rounds = shortened(rounds, N_MAX)
            for live in (False, True):
                cut = decide(name, target, rounds, live=live)
                key = f"{name}, {text}, {'live' if live else 'scalar'}"
                found[key] = judge(cut, rounds, measures[name])
    return found


def main() -> None:
    kept = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    measures = kept.get("yardsticks") or {
        name: yardstick(name, target) for name, target in curves().items()
    }
    document = {
        "about": "Made by tests/bench/decisions.py. The yardsticks stay; the cases are renewed.",
        "yardsticks": measures,
        "cases": every_case(measures),
    }
    GOLDEN.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
