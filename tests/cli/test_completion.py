"""Completions, the manual page, and a --help that loads nothing it does not need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autospec.cli.app import COMMANDS, main
from autospec.config.names import model_names
from autospec.ui.manual import _roff

HEAVY = {"pydantic", "numpy", "scipy", "rich", "httpx", "aiohttp", "asyncio", "sqlite3", "tomlkit"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "autospec.toml"
    path.write_text('[models.chat]\nhf = "a/b"\n[models."code.big"]\nhf = "c/d"\n')
    monkeypatch.setenv("AUTOSPEC_CONFIG", str(path))
    return path


def run(argv: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, **how)


def completed(*words: str, shell: str = "bash") -> list[str]:
    """What a shell is offered for the last of `words`."""
    env = {
        **os.environ,
        "_AUTOSPEC_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(["autospec", *words]),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
    }
    done = run([sys.executable, "-m", "autospec"], env=env)
    assert done.stderr == ""
    return [line.removeprefix("plain,") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("command", ["pin", "unpin", "off", "on", "logs", "calibrate"])
def test_models_are_completed(file: Path, command: str):
    assert completed(command, "") == ["chat", "code.big"]
    assert completed(command, "co") == ["code.big"]


def test_commands_pins_and_shells_are_completed(file: Path):
    assert completed("un") == ["unpin"]
    assert completed("pin", "chat", "n_") == ["n_max=", "n_min="]
    assert completed("unpin", "chat", "t") == ["type", "thresholds"]
    assert completed("unpin", "ch", shell="fish") == ["chat"]
    assert completed("completion", "") == ["bash", "fish", "zsh"]


def test_the_file_that_is_named_on_the_line_is_the_one_that_is_read(file: Path, tmp_path: Path):
    other = tmp_path / "other.toml"
    other.write_text("[models.third]\n")
    assert completed("calibrate", "--config", str(other), "") == ["third"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("[models"),
        lambda file: file.write_bytes(b"\xff\xfe"),
        lambda file: file.write_text("models = 3"),
        lambda file: file.write_text("x = " + "[" * 5000),
        lambda file: file.unlink(),
        lambda file: (file.unlink(), os.mkfifo(file)),
        lambda file: (file.unlink(), file.mkdir()),
        lambda file: os.truncate(file, 1 << 33),
    ],
)
def test_a_broken_file_offers_nothing_and_says_nothing(
    file: Path, damage: Callable[[Path], object]
):
    damage(file)
    assert model_names() == []


def test_the_users_file_comes_before_the_systems(isolated: Path):
    assert model_names() == []
    file = isolated / "config/autospec/autospec.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[models.mine]\n[models."\\u001b[2J"]\n')
    assert model_names() == ["mine"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_that_it_can_read(shell: str, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_AUTOSPEC_COMPLETE={shell}_complete" in script
    if path := shutil.which(shell):
        checked = subprocess.run(
            [path, "-n"], input=script, text=True, capture_output=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_itself_completes(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    main(["completion", "bash"])
    program = tmp_path / "autospec"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m autospec "$@"\n')
    program.chmod(0o755)
    script = capsys.readouterr().out + (
        "COMP_WORDS=(autospec pin co); COMP_CWORD=2; _autospec_completion autospec; "
        'echo "${COMPREPLY[@]}"'
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "code.big\n", done.stderr


def test_the_manual_names_every_command_and_renders_without_a_complaint(
    capsys: pytest.CaptureFixture[str],
):
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    for name in COMMANDS:
        assert f'.SS "autospec {name.replace("-", chr(92) + "-")}' in page
    assert "130 interrupted" in page
    if groff := shutil.which("groff"):
        done = run([groff, "-man", "-Tutf8", "-ww", "-Kutf8"], input=page)
        assert (done.returncode, done.stderr) == (0, "")
        assert "AUTOSPEC(1)" in done.stdout


def test_no_line_of_the_manual_can_be_taken_for_an_order():
    assert _roff(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert _roff("a\\fB-b") == "a\\efB\\-b"


@pytest.mark.parametrize("argv", [["--help"], ["pin", "--help"], ["status", "--help"]])
def test_help_loads_nothing_heavy_and_little_of_ours(argv: list[str]):
    script = (
        "import sys, click; before = set(sys.modules)\n"
        "from autospec.cli.app import main\n"
        f"main({argv!r})\n"
        "print('\\n'.join(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    loaded = set(done.stderr.split())
    assert "autospec.cli.app" in loaded
    assert not {name.split(".")[0] for name in loaded} & HEAVY
    assert len([name for name in loaded if name.startswith("autospec")]) <= 7
    assert len(loaded) <= 40
