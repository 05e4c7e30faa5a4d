"""Compiles the live library against a fake engine and plays with it, sanitizers included."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autospec.engine.live import build
from autospec.engine.live.memory import PolicyFile, RingFile
from autospec.engine.live.telemetry import RoundReader

NATIVE = Path(__file__).parent / "native"
WARNINGS = ("-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1")
LIBRARY = ("-fPIC", "-shared", "-fvisibility=hidden", "-fexceptions")


def compiled(folder: Path, *flags: str) -> Path:
    """The driver, linked so that the library stands before the fake engine."""
    compiler = build.find_compiler()
    assert compiler is not None
    sources = [str(build.FOLDER / name) for name in build.SOURCES]
    live, fake, driver = folder / "liblive.so", folder / "libfake.so", folder / "driver"
    linked = (str(live), str(fake), f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-pthread")
    fake_flags = (*WARNINGS[:-1], *flags, "-fPIC", "-shared")
    for arguments in (
        (*WARNINGS, *flags, *LIBRARY, "-o", live, *sources, "-ldl"),
        (*fake_flags, "-o", fake, NATIVE / "fake_engine.c"),
        (*WARNINGS[:-1], *flags, "-I", build.FOLDER, "-o", driver, NATIVE / "driver.c", *linked),
    ):
        subprocess.run([str(compiler), *map(str, arguments)], check=True, timeout=300)
    return driver


@dataclass
class Played:
    """What a run of the driver said: the last line is about its environment."""

    lines: list[str]
    environment: str

    @property
    def drafted(self) -> list[tuple[int, int]]:
        """(slot, tokens drafted) of each round."""
        pairs = (line.split() for line in self.lines)
        return [(int(slot), int(tokens)) for slot, tokens in pairs]


class Stage:
    """Both memory files and a driver to run beside them."""

    def __init__(self, driver: Path) -> None:
        self.driver = driver
        self.policy = PolicyFile()
        self.ring = RingFile()
        self.reader = RoundReader(self.ring)

    def run(self, *arguments: object, environment: Mapping[str, str] | None = None) -> Played:
        descriptors = (self.policy.descriptor, self.ring.descriptor)
        files = {"AUTOSPEC_LIVE": ",".join(map(str, descriptors))}
        argv = [str(self.driver), *map(str, arguments)]
        done = subprocess.run(
            argv,
            env={**os.environ, **files, **(environment or {})},
            pass_fds=descriptors,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}"
        lines: Sequence[str] = done.stdout.splitlines()
        return Played(list(lines[:-1]), lines[-1])

    def fuzz(self, seconds: float, seed: int) -> int:
        """Rounds played while both files were scribbled over."""
        descriptors = (self.policy.descriptor, self.ring.descriptor)
        return int(self.run("fuzz", seconds, seed, *descriptors).lines[0])

    def close(self) -> None:
        self.policy.close()
        self.ring.close()
