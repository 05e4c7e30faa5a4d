"""The daemon's arithmetic takes one core at most, and its children are not told."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os, threading
from autospec.daemon.one_thread import calm_arithmetic
calm_arithmetic()
import numpy as np
a = np.random.default_rng(0).random((600, 600))
for _ in range(4):
    a @ a
tasks = len(os.listdir("/proc/self/task"))
print(tasks, [name for name in os.environ if name.endswith("_NUM_THREADS")])
"""


def test_numpy_computes_in_one_thread_and_the_environment_is_left_as_it_was() -> None:
    env = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    assert told.stdout.split(maxsplit=1) == ["1", "[]\n"]


def test_the_daemon_does_without_scipy() -> None:
    """It would take a quarter more memory for what only reports need."""
    code = "import sys, autospec.daemon.app; sys.exit(any('scipy' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
