from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.hardware import load
from autospec.hardware.load import LoadSample, compare, parse_stat, sample

STAT = """\
cpu  99999 0 0 0 0 0 0 0 0 0
cpu0 100 10 50 1000 40 5 5 30 7 0
cpu1 200 0 0 800 0 0 0 0 0 0
cpu2 900 900 900 900 900 900 900 900 900 900
intr 1 2 3
"""

BEFORE = LoadSample(at=100.0, busy=50.0, stolen=1.0, total=200.0)
AFTER = LoadSample(at=110.0, busy=64.0, stolen=1.0, total=220.0)


def test_counts_the_seconds_of_our_cores_alone(monkeypatch):
    monkeypatch.setattr(load.os, "sysconf", lambda name: 100)
    assert parse_stat(STAT, frozenset({0, 1})) == (3.7, 0.3, 22.4)
    assert parse_stat(STAT, frozenset({1})) == (2.0, 0.0, 10.0)


@pytest.mark.parametrize(
    "text", ["", "cpu0", "cpu0 1 2 3\n", "cpu0 a b c d e f g h\n", "cpu 1 2 3 4 5 6 7 8\n"]
)
def test_an_unreadable_count_is_unknown(text):
    assert parse_stat(text, frozenset({0})) == (None, None, None)


@given(st.text())
def test_any_count_is_read_or_unknown(text):
    busy, stolen, total = parse_stat(text, None)
    assert (busy is None) == (total is None) == (stolen is None)


def test_what_is_not_our_own_is_contention():
    report = compare(BEFORE, AFTER, own_cpu_seconds=10.0)
    assert report.busy_share == pytest.approx(4 / 20)
    assert report.steal_share == 0.0
    assert report.sentence == "the machine was not quiet: other processes took 20% of the cores"


def test_a_quiet_machine_has_nothing_to_say():
    report = compare(BEFORE, AFTER, own_cpu_seconds=14.0)
    assert (report.busy_share, report.sentence) == (0.0, None)


def test_more_own_time_than_was_spent_is_no_negative_share():
    assert compare(BEFORE, AFTER, own_cpu_seconds=99.0).busy_share == 0.0


def test_a_greedy_hypervisor_is_named():
    report = compare(BEFORE, replace(AFTER, stolen=3.0), own_cpu_seconds=14.0)
    assert report.steal_share == pytest.approx(0.1)
    assert report.sentence is not None
    assert "hypervisor took 10%" in report.sentence


@pytest.mark.parametrize(
    "after",
    [
        replace(AFTER, at=100.1),
        replace(AFTER, total=200.0),
        replace(AFTER, total=None),
        replace(AFTER, total=10.0),
    ],
)
def test_shares_of_no_time_are_unknown(after):
    report = compare(BEFORE, after, own_cpu_seconds=0.0)
    assert (report.busy_share, report.steal_share, report.sentence) == (None, None, None)


def test_throttling_is_unknown_where_nothing_counts_it():
    assert compare(BEFORE, AFTER, own_cpu_seconds=14.0).throttled is None


def test_a_processor_that_throttled_is_named():
    cool = replace(BEFORE, throttle_events=3)
    assert compare(cool, replace(AFTER, throttle_events=3), 14.0).throttled is False
    hot = compare(cool, replace(AFTER, throttle_events=4), 14.0)
    assert hot.throttled is True
    assert "processor throttled" in (hot.sentence or "")


def test_a_gpu_that_was_held_back_is_named():
    free, held = replace(BEFORE, slowdowns=()), replace(AFTER, slowdowns=("power brake",))
    assert compare(free, replace(AFTER, slowdowns=()), 14.0).throttled is False
    report = compare(free, held, 14.0)
    assert report.throttled is True
    assert "a GPU was held back (power brake)" in (report.sentence or "")


def lay_core(root: Path, core: int, **files: str) -> None:
    for name, text in files.items():
        path = root / f"sys/devices/system/cpu/cpu{core}" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_samples_what_the_kernel_shows(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "allowed_cores", lambda: frozenset({0, 1}))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT)
    (tmp_path / "proc/loadavg").write_text("2.93 1.0 0.5 3/100 4242\n")
    for core, clock in ((0, "2000000"), (1, "4000000"), (2, "9000000")):
        lay_core(
            tmp_path,
            core,
            cpufreq__scaling_cur_freq=clock,
            thermal_throttle__core_throttle_count="2",
            thermal_throttle__package_throttle_count="1",
        )
    seen = sample(tmp_path)
    assert (seen.load_average, seen.frequency_mhz, seen.throttle_events) == (2.93, 3000.0, 6)
    assert seen.busy is not None


def test_samples_nothing_as_unknown(tmp_path):
    seen = sample(tmp_path)
    assert (seen.busy, seen.load_average, seen.frequency_mhz, seen.throttle_events) == (None,) * 4


def test_two_samples_of_this_machine_compare():
    first, second = sample(), sample()
    assert second.at >= first.at
    assert compare(first, second, 0.0).busy_share is None
