"""`autospec service`: what is planned from what is there, and edited files that survive it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec import paths
from autospec.cli.app import main
from autospec.config.values import key_file
from autospec.daemon import service, units
from autospec.daemon.service import Scope, Step, install_plan, uninstall_plan
from autospec.daemon.units import GPU_DROP_IN, UNIT, Condition, condition, filled_in, stamped
from autospec.errors import AutospecError

COMMAND = ("/opt/autospec/bin/autospec", "serve")


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    return Scope(user=False, folder=tmp_path / "system", config=tmp_path / "autospec.toml")


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A systemctl that notes what it is asked and does nothing; returns what it noted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program, notes = folder / "systemctl", folder / "notes"
    program.write_text(f'#!/bin/sh\necho "$*" >> {notes}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda: notes.read_text().splitlines() if notes.exists() else []


def carry_out(steps: list[Step]) -> list[Step]:
    return list(service.carry_out(steps))


def kinds(steps: list[Step]) -> list[str]:
    return [step.kind for step in steps]


def test_it_is_started_once_there_is_a_configuration(
    scope: Scope, systemctl: Callable[[], list[str]]
) -> None:
    steps = carry_out(install_plan(scope, COMMAND, gpu=False))
    assert kinds(steps) == ["write", "run", "run", "note"]
    assert "ExecStart=/opt/autospec/bin/autospec serve\n" in (scope.folder / UNIT).read_text()
    assert systemctl() == ["daemon-reload", "enable autospec.service"]
    scope.config.touch()
    carry_out(install_plan(scope, COMMAND, gpu=False))
    assert systemctl()[2:] == ["enable --now autospec.service"]


def test_doing_it_twice_is_doing_it_once(scope: Scope, systemctl: Callable[[], list[str]]) -> None:
    scope.config.touch()
    carry_out(install_plan(scope, COMMAND, gpu=True))
    before = {path: path.stat().st_mtime_ns for path in scope.folder.rglob("*")}
    again = carry_out(install_plan(scope, COMMAND, gpu=True))
    assert kinds(again) == ["keep", "keep", "run"]
    assert {path: path.stat().st_mtime_ns for path in scope.folder.rglob("*")} == before


def test_gpus_are_opened_only_where_one_is_seen_and_stay_open_when_it_is_away(
    scope: Scope, systemctl: Callable[[], list[str]]
) -> None:
    carry_out(install_plan(scope, COMMAND, gpu=False))
    assert not (scope.folder / GPU_DROP_IN).exists()
    carry_out(install_plan(scope, COMMAND, gpu=True))
    assert "char-nvidia" in (scope.folder / GPU_DROP_IN).read_text()
    assert [step.path for step in install_plan(scope, COMMAND, gpu=False)][1] == (
        scope.folder / GPU_DROP_IN
    )


def test_an_older_one_of_ours_is_brought_up_to_date(
    scope: Scope, systemctl: Callable[[], list[str]]
) -> None:
    scope.config.touch()
    carry_out(install_plan(scope, ("/old/autospec", "serve"), gpu=False))
    steps = install_plan(scope, COMMAND, gpu=False)
    assert (steps[0].kind, "up to date" in steps[0].says) == ("write", True)
    assert "systemctl restart autospec" in steps[-1].says


def test_an_edited_file_is_never_overwritten_and_never_removed(
    scope: Scope, systemctl: Callable[[], list[str]]
) -> None:
    carry_out(install_plan(scope, COMMAND, gpu=True))
    unit = scope.folder / UNIT
    edited = unit.read_text().replace("RestartSec=5s", "RestartSec=7s")
    unit.write_text(edited)
    steps = carry_out(install_plan(scope, COMMAND, gpu=True))
    assert (steps[0].kind, "was edited" in steps[0].says) == ("keep", True)
    assert "systemctl edit autospec" in steps[0].says
    removed = carry_out(uninstall_plan(scope, purge=False))
    assert unit.read_text() == edited
    assert any(step.kind == "keep" and step.path == unit for step in removed)
    assert not (scope.folder / GPU_DROP_IN).parent.exists()


def test_removing_it_leaves_the_configuration_and_files_of_others(
    scope: Scope, systemctl: Callable[[], list[str]]
) -> None:
    scope.config.touch()
    carry_out(install_plan(scope, COMMAND, gpu=True))
    own = (scope.folder / GPU_DROP_IN).with_name("override.conf")
    own.write_text("[Service]\nRestartSec=1s\n")
    carry_out(uninstall_plan(scope, purge=True))
    assert [path for path in scope.folder.rglob("*") if path.is_file()] == [own]
    assert scope.config.exists()
    assert systemctl()[-4:] == [
        "disable --now autospec.service",
        "reset-failed autospec.service",
        "clean --what=state --what=cache --what=runtime autospec.service",
        "daemon-reload",
    ]
    own.unlink()
    assert kinds(uninstall_plan(scope, purge=True)) == ["keep"]


def test_a_step_that_fails_ends_the_plan_and_says_what_systemd_said(
    scope: Scope, systemctl: Callable[[], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\necho 'Unit is bad' >&2; exit 1\n")
    with pytest.raises(AutospecError, match="Unit is bad") as raised:
        carry_out(install_plan(scope, COMMAND, gpu=False))
    assert "journalctl" in (raised.value.hint or "")


def test_what_its_user_could_not_start_is_refused(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o700)
    program = shut / "autospec"
    program.touch(mode=0o755)
    with pytest.raises(AutospecError, match="closed to others") as raised:
        service.refuse_unreachable([str(program), "serve"])
    assert "--user" in (raised.value.hint or "")


def test_a_dry_run_shows_the_steps_and_does_none(
    systemctl: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install", "--user", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    unit = paths.user_config() / "systemd/user" / UNIT
    assert f"would write {unit}" in shown
    assert not unit.exists()
    assert systemctl() == []


def test_for_one_user_it_is_put_in_place_and_taken_away(
    systemctl: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install", "--user", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    assert [step["kind"] for step in steps] == ["write", "run", "run", "note", "note"]
    unit = Path(steps[0]["path"])
    assert unit.read_text() == steps[0]["text"]
    assert systemctl() == ["--user daemon-reload", "--user enable autospec.service"]
    assert main(["service", "uninstall", "--user"]) == 0
    assert not unit.exists()


# --- texts --------------------------------------------------------------------------------


@given(st.text(max_size=200))
def test_a_stamp_fits_its_own_text_and_no_other(text: str) -> None:
    whole = stamped(text)
    assert condition(whole, whole) is Condition.CURRENT
    assert condition(whole, "another") is Condition.OUTDATED
    assert condition(f"# mine\n{whole}", whole) is Condition.EDITED
    assert condition(text, whole) is Condition.EDITED
    assert condition(None, whole) is Condition.ABSENT


def test_lines_added_under_the_stamp_are_an_edit() -> None:
    whole = stamped("[Service]\n")
    assert condition(f"{whole}RestartSec=1s\n", whole) is Condition.EDITED


def test_a_command_with_odd_characters_is_one_that_systemd_reads_back() -> None:
    command = ('/home/a b/100%/$x/auto"spec', "serve")
    text = filled_in("ExecStart=/usr/bin/x serve\n", command, ())
    assert text == 'ExecStart="/home/a b/100%%/$$x/auto\\"spec" serve\n'


def test_only_groups_that_exist_are_named() -> None:
    text = "SupplementaryGroups=video render\n"
    assert filled_in(text, COMMAND, {"video"}) == "SupplementaryGroups=video\n"
    assert filled_in(text, COMMAND, ()) == "SupplementaryGroups=\n"


def test_every_unit_comes_with_the_package() -> None:
    for text in (units.template(UNIT), units.template(UNIT, user=True)):
        assert "\nExecStart=" in text
    assert "DeviceAllow" in units.template(GPU_DROP_IN)


# --- folders and secrets that systemd names ---------------------------------------------------


def test_systemd_says_where_the_configuration_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIGURATION_DIRECTORY", "/etc/autospec:/etc/other")
    assert paths.config_files() == [Path("/etc/autospec/autospec.toml")]


def test_a_key_file_may_be_one_of_systemds_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/mine.service")
    there = Path("/run/credentials/mine.service/api-keys")
    assert key_file("credential:api-keys", Path("/etc")) == there
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    outside = Path("/run/credentials/autospec.service/api-keys")
    assert key_file("credential:api-keys", Path("/etc")) == outside
    assert key_file("keys", Path("/etc")) == Path("/etc/keys")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 300, "a b", "a\n"])
def test_a_credential_is_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="credential"):
        key_file(f"credential:{name}", Path("/etc"))
