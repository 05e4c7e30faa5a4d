"""Which engine this is: a hash over its program and the llama.cpp libraries that it loads.

Version texts say too little (a source archive prints `build 0, commit unknown`), so nothing
is keyed by them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from autospec import paths
from autospec.engine.elf import read_links

if TYPE_CHECKING:
    from collections.abc import Iterable

_OWN = re.compile(r"lib(?:llama|ggml|mtmd|llava)[A-Za-z0-9_.+-]*\.(?:so|dylib)[0-9.]*")
_PLUGIN = "libggml-*.so"
_SYSTEM = ("/usr/local/lib", "/lib", "/usr/lib", "/lib64", "/usr/lib64")
_MAX_FILES = 200
_MAX_CACHE = 1 << 20
_MAX_SCAN = 512 << 20
_CHUNK = 4 << 20


def engine_files(server: Path) -> tuple[Path, ...]:
    """The program and every llama.cpp library it loads, real paths, sorted by name.

    Follows the NEEDED entries as the dynamic loader would (RPATH, LD_LIBRARY_PATH, RUNPATH,
    system folders), and adds the backends that ggml opens at run time from its own folder.
    Where the program is not ELF, the llama.cpp libraries beside it or in `../lib` are taken.
    """
    server = server.resolve()
    if read_links(server) is None:
        beside = [server.parent, server.parent.parent / "lib"]
        found = {path.resolve() for folder in beside for path in _own_libraries(folder)}
        return (server, *sorted(found)[:_MAX_FILES])
    found = {server}
    queue: list[tuple[Path, tuple[Path, ...]]] = [(server, ())]
    while queue and len(found) < _MAX_FILES:
        current, inherited = queue.pop()
        needed, rpath = _needed(current, inherited)
        for path in [*needed, *sorted(current.parent.glob(_PLUGIN))]:
            real = path.resolve()
            if real not in found:
                found.add(real)
                queue.append((real, rpath))
    return tuple(sorted(found, key=lambda path: (path != server, path.name)))


def identity(files: tuple[Path, ...]) -> str:
    """SHA-256 (hex) over the names and contents of `files`; the folder does not count."""
    whole = hashlib.sha256()
    for path, digest in zip(files, file_digests(files), strict=True):
        whole.update(f"{path.name}\0{digest}\n".encode())
    return whole.hexdigest()


def mentions(files: tuple[Path, ...], text: bytes) -> bool:
    """Whether a program or library holds `text`; backends and giants are left out."""
    return any(_holds(path, text) for path in files if not path.match("libggml-[!b]*"))


def _holds(path: Path, text: bytes) -> bool:
    tail = b""
    try:
        with path.open("rb") as file:
            while file.tell() < _MAX_SCAN and (chunk := file.read(_CHUNK)):
                if text in tail + chunk:
                    return True
                tail = chunk[-len(text) :]
    except OSError:
        pass
    return False


def _own_libraries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if _OWN.fullmatch(path.name)]
    except OSError:
        return []


def _needed(file: Path, inherited: tuple[Path, ...]) -> tuple[list[Path], tuple[Path, ...]]:
    """The llama.cpp libraries that `file` asks for, and the RPATH that those inherit."""
    links = read_links(file)
    if links is None:
        return [], inherited

    def folders(names: Iterable[str]) -> tuple[Path, ...]:
        origin = str(file.parent)
        return tuple(Path(re.sub(r"\$\{?ORIGIN\}?", lambda _: origin, name)) for name in names)

    rpath = (*folders(links.rpath), *inherited) if not links.runpath else inherited
    preset = [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    places = (
        *(() if links.runpath else rpath),
        *folders([*preset, *links.runpath, *_system_folders()]),
    )
    located = (_locate(name, places) for name in links.needed if _OWN.fullmatch(name))
    return [path for path in located if path is not None], rpath


def _system_folders() -> tuple[str, ...]:
    machine = os.uname().machine
    return (*_SYSTEM, f"/usr/lib/{machine}-linux-gnu", f"/lib/{machine}-linux-gnu")


def _locate(name: str, folders: Iterable[Path]) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def file_digests(files: tuple[Path, ...]) -> list[str]:
    """SHA-256 (hex) of each file, remembered by path, size, time of change and inode.

    A cache that cannot be read or written only costs time.
    """
    store = paths.cache() / "digests.json"
    known = _load(store)
    fresh: dict[str, str] = {}
    digests = []
    for path in files:
        stat = path.stat()
        key = f"{path}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
        digest = known.get(key)
        if digest is None:
            with path.open("rb") as file:
                digest = fresh[key] = hashlib.file_digest(file, "sha256").hexdigest()
        digests.append(digest)
    if fresh:
        _save(store, known | fresh)
    return digests


def _load(store: Path) -> dict[str, str]:
    try:
        if store.stat().st_size > _MAX_CACHE:
            return {}
        entries = json.loads(store.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return {
        key: value
        for key, value in entries.items()
        if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value)
    }


def _save(store: Path, entries: dict[str, str]) -> None:
    recent = dict(list(entries.items())[-1000:])
    try:
        folder = paths.private(store.parent)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(recent, file)
        Path(file.name).replace(store)
    except OSError:
        return
