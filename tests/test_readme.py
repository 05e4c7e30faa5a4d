"""What the README says can be typed, and what it shows is what comes out."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from autospec import errors
from autospec.cli.app import cli
from autospec.config.schema import Config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
INLINE = re.findall(r"`([^`\n]+)`", PROSE)


def typed() -> list[str]:
    """Every command line that the README shows, in blocks and within sentences."""
    lines = [
        line.removeprefix("$ ")
        for kind, block in BLOCKS
        if kind == "console"
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    return [*lines, *(code for code in INLINE if code.startswith(("autospec ", "make ")))]


def command_lines(program: str) -> list[list[str]]:
    words = [shlex.split(line.removeprefix("sudo ")) for line in typed()]
    return [line[1:] for line in words if line[0] == program]


def test_the_readme_is_read_at_all() -> None:
    named = {line[0] for line in command_lines("autospec")}
    assert {"serve", "status", "doctor", "calibrate", "import"} <= named
    assert {"demo", "test"} <= {line[0] for line in command_lines("make")}


@pytest.mark.parametrize("line", command_lines("autospec"), ids=" ".join)
def test_every_command_and_flag_that_is_named_exists(line: list[str]) -> None:
    if line == ["--help"]:
        return
    words = iter(line)
    command: click.Command = cli
    while isinstance(command, click.Group):
        inner = command.get_command(click.Context(command), next(words))
        assert inner is not None, f"there is no `autospec {' '.join(line)}`"
        command = inner
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    ours = line[1 : line.index("--")] if "--" in line else line[1:]
    assert {word for word in ours if re.match(r"--?[a-z]", word)} <= known


def options_below(command: click.Command) -> Iterator[str]:
    for one in command.params:
        yield from one.opts
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options_below(below)


def test_flags_that_stand_alone_in_a_sentence_exist_in_some_command() -> None:
    known = set(options_below(cli))
    flags = {code.split()[0] for code in INLINE if re.match(r"--[a-z]", code)}
    of_the_engine = {flag for flag in flags if flag.startswith("--draft-")}
    assert flags - of_the_engine <= known
    assert flags - of_the_engine


@pytest.mark.parametrize("line", command_lines("make"), ids=" ".join)
def test_every_target_of_make_exists(line: list[str]) -> None:
    assert re.search(rf"^{line[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_help_that_is_shown_is_the_help_that_is_printed() -> None:
    # click leaves two columns of a terminal's 80 free.
    printed = CliRunner().invoke(cli, ["--help"], prog_name="autospec", terminal_width=78).output
    [shown] = [block for _, block in BLOCKS if block.startswith("$ autospec --help\n")]
    assert shown.removeprefix("$ autospec --help\n") == printed


def test_the_reference_is_what_every_command_prints() -> None:
    shown = README.split("<!-- reference -->\n")[1].split("<!-- end of reference -->")[0]
    # In a process of its own: click remembers the options of a command that was asked before.
    ask = [sys.executable, "-m", "autospec", "man", "--markdown"]
    printed = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert shown == printed, "make reference writes it anew"


@pytest.mark.parametrize("block", [block for kind, block in BLOCKS if kind == "toml"])
def test_every_configuration_that_is_shown_is_valid(block: str) -> None:
    assert Config.model_validate(tomllib.loads(block), context={"base": Path("/")}).models


def test_the_table_of_exit_codes_is_complete() -> None:
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    codes = {one.exit_code for one in kinds if issubclass(one, errors.AutospecError)}
    shown = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert shown == codes | {0, errors.INTERRUPTED}


def test_every_file_that_is_named_exists() -> None:
    place = re.compile(r"(configs|systemd|tests)/.*|LICENSE|[A-Z]+\.md")
    files = [code for code in INLINE if place.fullmatch(code)]
    assert "LICENSE" in files
    assert [file for file in files if not (ROOT / file).exists()] == []
