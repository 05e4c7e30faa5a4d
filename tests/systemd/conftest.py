"""A booted machine with autospec installed in it from a wheel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import machine as machines
import pytest
from machine import Machine

if TYPE_CHECKING:
    from autospec.demo.assets import DemoModels
    from autospec.engine.find import Engine

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def machine(wheel: Path, engine: Engine, models: DemoModels) -> Iterator[Machine]:
    if (reason := machines.why_not()) is not None:
        pytest.skip(reason)
    pair = (models.draft, models.draft_one_dropped)
    lend = {wheel: f"/opt/{wheel.name}", engine.folder: "/opt/engine"}
    lend |= {file: f"/opt/models/{file.name}" for file in pair}
    with Machine(lend) as booted:
        install(booted, wheel)
        yield booted


def install(machine: Machine, wheel: Path) -> None:
    """A fresh environment with the wheel; what it depends on is lent to it."""
    python = str(machines.PYTHON / f"bin/python{sys.version_info.major}.{sys.version_info.minor}")
    machine.run(python, "-m", "venv", "--without-pip", "/opt/autospec")
    pip = ("/opt/autospec/bin/python", "-m", "pip", "--disable-pip-version-check", "install")
    options = ("--quiet", "--no-deps", "--no-index", "--root-user-action=ignore")
    lent = "/opt/dependencies"
    machine.run("env", f"PYTHONPATH={lent}", *pip, *options, f"/opt/{wheel.name}")
    packages = machine.run(
        "/opt/autospec/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
    )
    machine.write(f"{packages}/lent.pth", f"{lent}\n")
