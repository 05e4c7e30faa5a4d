"""Commands that people type all day start quickly: what is slow to import stays out of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = {"numpy", "scipy", "pydantic", "httpx", "aiohttp", "plotext", "psutil", "matplotlib"}
RUN = """\
import sys
from autospec.cli.app import main
main(sys.argv[1:])
if sys.argv[1:] == ["status"]:  # without a daemon it does not come to drawing
    import autospec.ui.status, autospec.ui.watch
loaded = {name.partition(".")[0] for name in sys.modules}
print("loaded:", *sorted(loaded))
print("ours:", *sorted(name for name in sys.modules if name.startswith("autospec.")))
"""


def loaded(*arguments: str) -> tuple[set[str], set[str]]:
    """The packages, and the modules of ours, that are in memory once the command has run."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    packages, ours = ran.stdout.splitlines()[-2:]
    return set(packages.split()[1:]), set(ours.split()[1:])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["status", "--help"]], ids=str)
def test_help_loads_nothing_that_is_slow(arguments: list[str]) -> None:
    packages, ours = loaded(*arguments)
    assert packages & (SLOW | {"rich", "asyncio", "tomlkit"}) == set()
    assert "autospec.cli.app" in ours


def test_status_loads_only_what_it_draws_with() -> None:
    packages, ours = loaded("status")
    assert "autospec.ui.watch" in ours
    assert packages & SLOW == set()
    rooms = {name.split(".")[1] for name in ours}
    assert rooms & {"calibration", "config", "engine", "tuning", "hardware"} == set()
