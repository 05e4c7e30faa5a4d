"""The systemd units agree with what the daemon does."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import autospec
from autospec.config.schema import ServerSection
from autospec.daemon.timing import Timing
from autospec.errors import ConfigError, EngineError, ModelError

UNITS = Path(autospec.__file__).parent / "systemd"
SYSTEM, USER = UNITS / "autospec.service", UNITS / "user/autospec.service"
GPU = UNITS / "autospec.service.d/gpu.conf"
NEEDS_SYSTEMD = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="no systemd-analyze here"
)
BOTH = pytest.mark.parametrize("unit", [SYSTEM, USER], ids=["system", "user"])


def settings(unit: Path) -> dict[str, str]:
    lines = [line for line in unit.read_text().splitlines() if line and line[0] not in "#["]
    return dict(line.split("=", 1) for line in lines)


@BOTH
def test_faults_that_a_restart_cannot_mend_are_not_retried(unit: Path) -> None:
    told = settings(unit)
    final = {error.exit_code for error in (ConfigError, EngineError, ModelError)}
    assert {int(code) for code in told["RestartPreventExitStatus"].split()} == final
    assert told["Restart"] == "on-failure"
    assert int(told["StartLimitBurst"]) < 10


@BOTH
def test_systemd_waits_longer_than_draining_takes_and_leaves_the_child_to_autospec(
    unit: Path,
) -> None:
    told = settings(unit)
    assert int(told["TimeoutStopSec"].removesuffix("s")) > ServerSection().drain + Timing().grace
    assert told["KillMode"] == "mixed"


@BOTH
def test_what_autospec_writes_is_private(unit: Path) -> None:
    told = settings(unit)
    kinds = [kind for kind in ("State", "Cache", "Runtime") if f"{kind}Directory" in told]
    assert {"Cache", "Runtime"} <= set(kinds)
    assert {told[f"{kind}DirectoryMode"] for kind in kinds} == {"0700"}
    assert {told[f"{kind}Directory"] for kind in kinds} == {"autospec"}
    assert told["UMask"] == "0077"


@BOTH
def test_systemd_is_told_and_watches(unit: Path) -> None:
    told = settings(unit)
    assert told["Type"] == "notify"
    assert told["NotifyAccess"] == "main"
    assert int(told["WatchdogSec"].removesuffix("s")) < Timing().pace.longest_pause
    assert "kill -HUP $MAINPID" in told["ExecReload"]


def test_the_gpu_file_opens_what_the_unit_shuts_and_nothing_else() -> None:
    shut, opened = settings(SYSTEM), settings(GPU)
    assert shut["DevicePolicy"] == "closed"
    walls = {name for name, value in opened.items() if value == "no"}
    assert walls == {"PrivateDevices", "PrivateUsers", "MemoryDenyWriteExecute", "PrivateIPC"}
    assert {shut[wall] for wall in walls} == {"yes"}
    assert set(opened) - walls == {"DeviceAllow", "SupplementaryGroups"}


@NEEDS_SYSTEMD
@BOTH
def test_systemd_finds_no_fault(unit: Path, tmp_path: Path) -> None:
    command = settings(unit)["ExecStart"]
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(command.split()[0], "/bin/true"))
    (tmp_path / "systemd").mkdir()
    scope = ["--user"] if unit == USER else []
    checked = subprocess.run(
        ["systemd-analyze", *scope, "verify", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert [line for line in checked.stderr.splitlines() if "autospec" in line] == []
    assert checked.returncode == 0, checked.stderr


def exposure(folder: Path) -> float:
    """The score of `systemd-analyze security`, 0 (shut) to 10 (open)."""
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", str(folder / "autospec.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    (score,) = re.findall(r"Overall exposure level for autospec\.service: ([0-9.]+)", rated.stdout)
    return float(score)


@NEEDS_SYSTEMD
def test_the_unit_is_shut_as_far_as_serving_allows(tmp_path: Path) -> None:
    shutil.copy(SYSTEM, tmp_path)
    assert exposure(tmp_path) < 1.5
    (tmp_path / "autospec.service.d").mkdir()
    shutil.copy(GPU, tmp_path / "autospec.service.d")
    assert exposure(tmp_path) < 2.5
