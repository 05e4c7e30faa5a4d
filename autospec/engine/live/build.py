"""Compiles the library once, with the system's C compiler, and keeps it.

The folder is private (0700). What is about to be loaded into a server must be ours, writable by
nobody else, and hold the bytes that were compiled: that is checked at each launch.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from autospec import paths
from autospec.errors import EngineError

SOURCES = ("live.c", "rounds.c", "shared.c", "engine.c")
HEADERS = ("layout.h", "rounds.h", "shared.h", "engine.h")
FOLDER = Path(__file__).parent

_COMPILERS = ("cc", "gcc", "clang")
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/bin")
_FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fexceptions",
    "-fno-lto", "-fstack-protector-strong", "-Wl,-z,now", "-Wl,-z,relro",
    "-Wl,-z,noexecstack",
)  # fmt: skip
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
_SECONDS = 120.0


class LiveUnavailable(EngineError):
    """The live policy cannot be used here, and why; the scalar applier serves instead."""


def library() -> Path:
    """The compiled library, made now if it is not there yet (about a second).

    LiveUnavailable: not Linux, no compiler, a compiler that fails, or a file that is not ours.
    """
    if sys.platform != "linux":
        raise LiveUnavailable("the live policy needs Linux (sealed memory files, LD_PRELOAD)")
    compiler = find_compiler()
    if compiler is None:
        raise LiveUnavailable(
            f"no C compiler in {', '.join(_FOLDERS)}", hint="install gcc or clang to use it"
        )
    if any(mark in str(paths.cache()) for mark in ": "):
        raise LiveUnavailable(
            f"the cache folder {paths.cache()} has a colon or a space in its name, which part "
            "the entries of LD_PRELOAD"
        )
    try:
        folder = paths.private(paths.cache() / "live")
        made = folder / f"live-{_key(compiler)}.so"
        if not made.exists():
            _compile(compiler, made)
        check(made)
    except OSError as error:
        raise LiveUnavailable(f"the live library cannot be kept: {error}") from error
    return made


def find_compiler() -> Path | None:
    """A C compiler by absolute path: the user's PATH has no say in what runs inside a server."""
    candidates = (Path(folder, name) for folder in _FOLDERS for name in _COMPILERS)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def _key(compiler: Path) -> str:
    whole = hashlib.sha256(f"{compiler}\0{_run([str(compiler), '--version'])}".encode())
    whole.update("\0".join(_FLAGS).encode())
    for name in (*SOURCES, *HEADERS):
        whole.update((FOLDER / name).read_bytes())
    return whole.hexdigest()[:32]


def _compile(compiler: Path, made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=made.parent, prefix="build-") as work:
        output = Path(work) / made.name
        sources = [str(FOLDER / name) for name in SOURCES]
        _run([str(compiler), *_FLAGS, "-o", str(output), *sources, "-ldl"])
        output.chmod(0o500)
        digest = hashlib.sha256(output.read_bytes()).hexdigest()
        recorded = Path(work) / "digest"
        recorded.write_text(digest)
        recorded.replace(_digest_of(made))
        output.replace(made)


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv,
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LiveUnavailable(f"the compiler does not run: {error}") from error
    if done.returncode != 0:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise LiveUnavailable(f"{argv[0]} cannot compile the live library: {said.strip()[:300]}")
    return done.stdout


def _digest_of(made: Path) -> Path:
    return made.with_suffix(".sha256")


def check(made: Path) -> None:
    """See that `made` is fit to be loaded. LiveUnavailable if not, OSError if it is not there."""
    for path in (made.parent, made, _digest_of(made)):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise LiveUnavailable(
                f"{path} is not ours alone", hint=f"remove {made.parent}; it is made again"
            )
    if hashlib.sha256(made.read_bytes()).hexdigest() != _digest_of(made).read_text().strip():
        raise LiveUnavailable(
            f"{made} is not what was compiled", hint=f"remove {made.parent}; it is made again"
        )
