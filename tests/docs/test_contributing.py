"""CONTRIBUTING.md names every room and every dependency that there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def first_column(heading: str) -> set[str]:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return {word for cell in cells[1:] for word in re.findall(r"[a-z0-9_/-]+", cell)}


def test_every_room_is_on_the_map():
    rooms = {path.parent.name for path in (ROOT / "autospec").glob("*/__init__.py")}
    assert first_column("The rooms") == {f"{room}/" for room in rooms}


def test_every_dependency_has_its_reason():
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["demo"], *extras["bench"]]
    names = {re.split(r"[<>=]", requirement)[0] for requirement in wanted}
    assert names == first_column("Dependencies, each with its reason") - {"demo", "bench"}
