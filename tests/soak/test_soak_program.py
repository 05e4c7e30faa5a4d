"""The soak itself, for a few seconds on the fake engine, so that it works when it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import gguf_writer as w
import pytest
from watching import MIB, Sample, growth

if TYPE_CHECKING:
    from conftest import FakeEngine

SOAK = Path(__file__).parent / "soak.py"


@pytest.mark.fault
def test_a_short_soak_loses_nothing(fake_engine: FakeEngine, tmp_path: Path):
    fake_engine.script_server(token_ms=5)
    model = w.write(tmp_path / "m.gguf")
    arguments = ["--minutes", "0.3", "--least", "1", "--seed", "5", "--json"]
    arguments += ["--faults", "killed,crashed,told to end,planned restart"]
    arguments += ["--engine", str(fake_engine.server), "--fake", str(model)]
    done = subprocess.run(
        [sys.executable, str(SOAK), *arguments],
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert sum(found["faults"].values()) > 1
    assert found["requests"]["answer"]["whole"] > 5
    assert not found["lost"]


def flat(**changed: list[int]) -> dict[str, tuple[float, float, bool]]:
    count = 40
    sound = {"memory": 90 * MIB, "descriptors": 20, "threads": 5, "children": 1, "state": MIB}
    columns = {name: changed.get(name, [value] * count) for name, value in sound.items()}
    return growth(
        [
            Sample(**dict(zip(columns, row, strict=True)))
            for row in zip(*columns.values(), strict=True)
        ]
    )


def test_what_grows_without_end_is_noticed_and_what_settles_is_not():
    assert all(verdict for _, _, verdict in flat().values())
    assert not flat(descriptors=[20 + n for n in range(40)])["descriptors"][2]
    assert not flat(memory=[(90 + 2 * n) * MIB for n in range(40)])["memory"][2]
    settles = [(60 + min(n, 8)) * MIB for n in range(40)]
    assert flat(memory=settles)["memory"][2]
