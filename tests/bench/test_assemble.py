"""From a configuration to what is measured: names, slots, cells, and the journal's key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from decisions import DEMO, curves, model_of, rounds_of

from autospec.bench.arms import ARMS, Subject, average_cost_policy
from autospec.bench.assemble import Wishes, journal_key, name_of, order_of, with_slots
from autospec.bench.suite import FULL, QUICK
from autospec.calibration.prepare import Prepared
from autospec.config.schema import Config
from autospec.engine.find import read_engine
from autospec.errors import UsageError
from autospec.tuning.oldrules import rule_17034

if TYPE_CHECKING:
    from conftest import FakeEngine


def config_of(**models: dict[str, Any]) -> Config:
    return Config.model_validate({"models": models})


PAIR = {"path": "/t.gguf", "draft": "/d.gguf", "context": 4096, "slots": 2}


def subject_of(fake: FakeEngine, tmp_path: Path) -> Subject:
    for name in ("t.gguf", "d.gguf"):
        (tmp_path / name).write_bytes(name.encode())
    files = {"path": str(tmp_path / "t.gguf"), "draft": str(tmp_path / "d.gguf")}
    config = config_of(pair=PAIR | files)
    model = config.models["pair"]
    engine = read_engine(fake.server, "a test")
    prepared = Prepared(engine, model.launch("pair"), {}, 4096, None, None, (), on_gpu=False)
    calibration = model_of(DEMO, curves()[DEMO], rounds_of("same_weights"), live=False).calibration
    assert calibration is not None
    return Subject(config, model, prepared, calibration)


def test_the_only_model_needs_no_name_and_a_pair_is_needed() -> None:
    assert name_of(config_of(chat=PAIR), None) == "chat"
    with pytest.raises(UsageError, match="name the model"):
        name_of(config_of(a=PAIR, b=PAIR), None)
    with pytest.raises(UsageError, match="no model is called"):
        name_of(config_of(a=PAIR), "b")
    with pytest.raises(UsageError, match="no draft"):
        name_of(config_of(a={"path": "/t.gguf"}), "a")


def test_more_slots_keep_the_context_of_each() -> None:
    config = with_slots(config_of(chat=PAIR), "chat", (1, 4))
    assert (config.models["chat"].slots, config.models["chat"].context) == (4, 8192)
    assert with_slots(config, "chat", (2,)) is config


def test_a_suite_covers_loads_and_depths(fake_engine: FakeEngine, tmp_path: Path) -> None:
    prepared = subject_of(fake_engine, tmp_path).prepared
    quick = order_of(QUICK, Wishes(), prepared)
    assert quick.arms == ARMS
    assert [cell.key for cell in quick.cells][-2:] == ["mixture", "mixture/slots=2"]
    full = order_of(FULL, Wishes(arms=("live",)), prepared)
    assert full.arms == ("plain", "live")
    depths = [cell.depth for cell in full.cells if cell.depth]
    assert len(depths) == 3
    assert max(depths) + FULL.tokens < 2048
    own = tmp_path / "own.txt"
    own.write_text("Say one thing.\n")
    assert [cell.key for cell in order_of(QUICK, Wishes(prompts=own), prepared).cells] == [
        "own",
        "own/slots=2",
    ]


def test_a_journal_is_found_again_only_for_the_same_benchmark(
    fake_engine: FakeEngine, tmp_path: Path
) -> None:
    subject = subject_of(fake_engine, tmp_path)
    order = order_of(QUICK, Wishes(), subject.prepared)
    key = journal_key(subject, order)
    assert journal_key(subject, order) == key
    longer = replace(order, suite=replace(QUICK, budget=9999.0))
    assert journal_key(subject, longer) == key
    assert journal_key(subject, replace(order, suite=replace(QUICK, tokens=49))) != key
    assert journal_key(subject, replace(order, arms=ARMS[:2])) != key
    (tmp_path / "d.gguf").write_bytes(b"another draft")
    assert journal_key(subject, order) != key


def test_the_old_rule_is_played_by_average_costs(fake_engine: FakeEngine, tmp_path: Path) -> None:
    calibration = subject_of(fake_engine, tmp_path).calibration
    policy, surface = average_cost_policy(calibration), calibration.surface
    single = surface.step(1).value
    relative = [surface.step(b).value / b / single for b in range(1, calibration.max_draft + 2)]
    for p in ([0.9] * 12, [0.99, 0.2, 0.9], [0.3], []):
        survival = np.cumprod(p).tolist()
        assert policy.kept(p, busy=1, depth=0) == rule_17034(relative, survival)
