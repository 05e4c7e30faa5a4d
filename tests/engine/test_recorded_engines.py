"""What engines of several ages said (see tests/engines/record.py), read by every parser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autospec.engine.bench import parse_rows
from autospec.engine.capabilities import Capabilities, capabilities
from autospec.engine.find import parse_version
from autospec.engine.help_text import parse_help
from autospec.engine.metrics import difference, parse_metrics
from autospec.engine.observe import parse_props, parse_slots, parse_timings
from autospec.engine.round_log import RoundReader
from autospec.hardware.gpu import parse_list_devices

ENGINES = Path(__file__).parents[1] / "data/engines"
BUILDS = {int(folder.name): folder for folder in sorted(ENGINES.iterdir())}
GENERATIONS = {9093: "spec-draft", 10248: "spec-type", 11434: "spec-type"}

pytestmark = pytest.mark.parametrize("build", BUILDS)


def said(build: int, name: str) -> str:
    return (BUILDS[build] / name).read_text()


def able(build: int) -> Capabilities:
    return capabilities(parse_help(said(build, "help.txt")))


def test_its_flags_are_those_of_its_generation(build: int) -> None:
    found = able(build)
    assert found.generation == GENERATIONS[build]
    assert "draft-simple" in found.spec_types
    assert found.name_of("n_max") == "--spec-draft-n-max"
    assert all(found.name_of(name) for name in ("n_min", "p_min", "draft"))
    assert {"--metrics", "--slots", "--host", "--parallel", "--ctx-size"} <= found.flags
    assert "--list-devices" in found.flags


def test_it_names_its_version_and_no_device(build: int) -> None:
    assert parse_version(said(build, "version.txt")) != "unknown"
    assert parse_list_devices(said(build, "devices.txt")) == ()


def test_its_benchmark_takes_what_is_asked_and_its_rows_are_read(build: int) -> None:
    flags = parse_help(said(build, "bench-help.txt"))
    assert {"-npp", "-ntg", "-npl", "-pps", "-kvu", "--output-format"} <= flags.keys()
    rows = list(parse_rows(said(build, "bench.jsonl").splitlines()))
    assert [(row.depth, row.parallel) for row in rows] == [
        (depth, parallel) for depth in (0, 64) for parallel in (1, 1, 2, 4)
    ]
    assert all(row.step_ms > 0 for row in rows)


def test_its_counters_tell_what_the_completion_told(build: int) -> None:
    counters = parse_metrics(said(build, "metrics.txt"))
    timings = parse_timings(said(build, "completion.json"))
    assert timings is not None
    assert timings.drafted
    assert counters.predicted == timings.predicted_n
    assert counters.predicted_seconds
    seen = difference(replace(counters, predicted=0), counters)
    assert seen is not None
    assert seen.predicted == timings.predicted_n
    assert seen.tells_drafts is (counters.drafted is not None)
    if seen.tells_drafts:
        assert (counters.drafted, counters.accepted) == (timings.drafted, timings.accepted)


def test_its_slots_say_whether_they_speculate(build: int) -> None:
    slots = parse_slots(said(build, "slots.json"))
    assert slots
    assert all(slot.speculative and not slot.processing for slot in slots)
    props = parse_props(said(build, "props.json"))
    assert props.slots == len(slots)
    assert props.context == slots[0].n_ctx


def test_its_log_shows_rounds_that_agree_with_the_timings(build: int) -> None:
    reader = RoundReader()
    for line in said(build, "rounds.log").splitlines():
        reader.take(line)
    timings = parse_timings(json.dumps(json.loads(said(build, "completion.json"))))
    assert timings is not None
    assert reader.dropped == 0
    drafted = sum(one.drafted for one in reader.rounds)
    assert timings.drafted is not None
    # The last draft may be longer than what its request had room for (build 9093).
    assert timings.drafted - reader.rounds[-1].drafted <= drafted <= timings.drafted
    assert sum(one.accepted for one in reader.rounds) == timings.accepted
