"""What is built is whole: everything that a program of ours reads comes with the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def build(target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, whose `bin` this returns; dependencies are lent."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False)
    python = home / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    Path(packages, "lent.pth").write_text(f"{lent}\n")
    return home / "bin"


def ours(folder: Path) -> set[str]:
    """Every file of the package as git would have it, links followed."""
    left_out = {"__pycache__", ".mypy_cache"}
    files = {
        file.relative_to(ROOT).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and not left_out & set(file.parts)
    }
    units = [file for file in (ROOT / "systemd").rglob("*") if file.is_file()]
    return files | {f"autospec/{file.relative_to(ROOT)}" for file in units}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == ours(ROOT / "autospec")
    kinds = {Path(name).suffix for name in names}
    assert {".py", ".c", ".h", ".toml", ".service", ".conf", ".html", ".css", ".js"} <= kinds
    assert "autospec/py.typed" in names


def test_its_description_is_that_of_the_project(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [one for one in archive.namelist() if one.endswith("/METADATA")]
    told = Parser().parsestr(archive.read(name).decode())
    assert told["Name"] == PROJECT["name"]
    assert told["Requires-Python"] == PROJECT["requires-python"]
    needed = [one for one in told.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert len(needed) == len(PROJECT["dependencies"])
    assert any(one.endswith("/licenses/LICENSE") for one in archive.namelist())


def test_the_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = build("sdist", tmp_path / "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    command += ["-d", str(tmp_path / "again")]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (again,) = (tmp_path / "again").iterdir()
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())
    assert {"tests", "configs", "README.md", "CONTRIBUTING.md"} <= {
        path.name for path in source.iterdir()
    }


def test_installed_from_the_wheel_it_has_its_units_its_prompts_and_its_library(
    installed: Path, isolated: Path
) -> None:
    def say(*arguments: str) -> str:
        ran = subprocess.run(
            [str(installed / arguments[0]), *arguments[1:]],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=isolated,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert say("autospec", "--version").startswith("autospec, version")
    shown = say("autospec", "service", "install", "--user", "--dry-run", "--json")
    assert f"ExecStart={installed}/autospec serve" in shown
    script = (
        "import autospec\n"
        "from autospec.calibration.prompts import prompts\n"
        "from autospec.engine.live import build\n"
        "print(autospec.__file__, len(prompts('learning')), build.library())"
    )
    where, count, library = say("python", "-c", script).split()
    assert Path(where).is_relative_to(installed.parent)
    assert int(count) > 0
    assert Path(library).is_file()
