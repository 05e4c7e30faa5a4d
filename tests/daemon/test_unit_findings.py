"""The doctor looks at the service: its file, and what systemd says of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.daemon.findings import Finding, about_compiler, about_passed_on
from autospec.daemon.service import Scope
from autospec.daemon.unit_findings import Unit, about_units, look
from autospec.daemon.units import GPU_DROP_IN, UNIT, Condition, filled_in, stamped, template

Told = Callable[..., None]
RUNS = {"ActiveState": "active", "StatusText": "chat ready", "UnitFileState": "enabled"}


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    folder = tmp_path / "system"
    folder.mkdir()
    return Scope(user=False, folder=folder, config=tmp_path / "autospec.toml")


@pytest.fixture
def systemd_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Set what `systemctl show` prints."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "systemctl"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def says(text: str, code: int = 0) -> None:
        (folder / "said").write_text(text)
        program.write_text(f"#!/bin/sh\ncat {folder}/said; exit {code}\n")
        program.chmod(0o755)

    says("\n".join(f"{name}={value}" for name, value in RUNS.items()))
    return says


def put(scope: Scope, program: str = "/bin/true", edit: str = "") -> None:
    text = stamped(filled_in(template(UNIT), (program, "serve"), {"video"}))
    (scope.folder / UNIT).write_text(text + edit)


def found(scope: Scope, *, gpu: bool = False) -> list[Finding]:
    unit = look(scope, {"video"})
    return list(about_units([unit] if unit else [], gpu=gpu))


def test_without_a_service_the_way_to_one_is_named(scope: Scope) -> None:
    (finding,) = found(scope)
    assert (finding.level, finding.remedy) == ("note", "autospec service install")


def test_a_service_that_runs_says_what_it_does(scope: Scope, systemd_says: Told) -> None:
    put(scope)
    assert found(scope) == [Finding("ok", "service", "it runs: chat ready")]


@pytest.mark.parametrize(
    ("told", "level", "words", "remedy"),
    [
        ("ActiveState=failed\nResult=exit-code", "error", "exit-code", "journalctl -u autospec"),
        ("ActiveState=active\nNRestarts=3", "warning", "3 times", "journalctl"),
        ("ActiveState=active\nUnitFileState=disabled", "note", "boot", "systemctl enable"),
        ("ActiveState=inactive", "note", "it is inactive", "systemctl start"),
        ("NeedDaemonReload=yes", "warning", "new file", "systemctl daemon-reload"),
        ("", "note", "does not answer", "systemctl start"),
    ],
)
def test_what_systemd_says_becomes_a_finding_with_a_command(
    scope: Scope, systemd_says: Told, told: str, level: str, words: str, remedy: str
) -> None:
    systemd_says(told)
    put(scope)
    (finding,) = [one for one in found(scope) if words in one.sentence]
    assert finding.level == level
    assert remedy in (finding.remedy or "")


def test_a_system_without_systemd_is_survived(scope: Scope, systemd_says: Told) -> None:
    put(scope)
    systemd_says("System has not been booted with systemd", code=1)
    (finding,) = found(scope)
    assert "does not answer" in finding.sentence


def test_an_edited_file_a_lost_program_and_a_gpu_outside_are_seen(
    scope: Scope, systemd_says: Told
) -> None:
    put(scope, program="/no/such/autospec", edit="RestartSec=9s\n")
    sentences = " ".join(one.sentence for one in found(scope, gpu=True))
    assert "was edited" in sentences
    assert "starts /no/such/autospec, which is gone" in sentences
    assert "a GPU, which the unit shuts out" in sentences
    (scope.folder / GPU_DROP_IN).parent.mkdir()
    (scope.folder / GPU_DROP_IN).touch()
    assert not any("GPU" in one.sentence for one in found(scope, gpu=True))


def test_one_of_another_version_is_brought_up_to_date(scope: Scope, systemd_says: Told) -> None:
    (scope.folder / UNIT).write_text(stamped("[Service]\nExecStart=/bin/true serve\n"))
    assert found(scope)[0].remedy == "autospec service install"
    assert "another version" in found(scope)[0].sentence


@pytest.mark.parametrize("program", ["/a b/auto$spec", "/100%/autospec", '/q"uo\\te/autospec'])
def test_a_program_with_odd_characters_is_recognised(scope: Scope, program: str) -> None:
    put(scope, program=program)
    unit = look(scope, {"video"})
    assert isinstance(unit, Unit)
    assert unit.program == Path(program)
    assert unit.condition is Condition.CURRENT


@given(text=st.text())
def test_any_file_is_read(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("units")
    (folder / UNIT).write_text(text, encoding="utf-8", errors="replace")
    unit = look(Scope(user=True, folder=folder, config=folder), set())
    assert unit is not None
    assert unit.condition is not Condition.CURRENT


def test_variables_that_change_the_engines_libraries_or_hide_its_gpus_are_named() -> None:
    set_here = {"LD_PRELOAD": "/lib/x.so", "CUDA_VISIBLE_DEVICES": ""}
    levels = {one.sentence.split()[0]: one.level for one in about_passed_on(set_here, gpu=True)}
    assert levels == {"LD_PRELOAD": "note", "CUDA_VISIBLE_DEVICES=": "warning"}
    assert len(list(about_passed_on(set_here, gpu=False))) == 1
    assert list(about_passed_on({"CUDA_VISIBLE_DEVICES": "0"}, gpu=True)) == []


def test_a_compiler_is_missed_only_where_something_is_compiled() -> None:
    assert about_compiler(None, needed=True).level == "warning"
    assert about_compiler(None, needed=False).level == "note"
    assert about_compiler("/usr/bin/cc", needed=True).level == "ok"
