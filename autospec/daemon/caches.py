"""What the slots of a child have read, kept over a planned restart.

A prompt that is read again costs seconds to minutes; its cache is written and read in a fraction
of one. The engine saves the target's cache alone, and a draft model does not read its own part
anew: seen on build 11434, 17 of 84 drafted tokens were accepted after a restore, 26 of 26 without.
So caches are kept only for a child that loads no draft. The files hold what clients wrote; they
lie in a private folder for as long as the restart takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from autospec import paths
from autospec.daemon.child import Child, Note
from autospec.daemon.terms import Terms
from autospec.errors import EngineError

FLAG = "--slot-save-path"
_PREFIX = "slots-"


@dataclass(frozen=True)
class _Kept:
    slot: int
    name: str
    tokens: int


class Caches:
    """Of one model. `seconds` is what saving, and restoring, may take."""

    def __init__(self, note: Note, seconds: float) -> None:
        self._note = note
        self._seconds = seconds
        self._folder: Path | None = None
        self._terms: Terms | None = None
        self._kept: tuple[_Kept, ...] = ()

    def folder(self, terms: Terms) -> Path | None:
        """Where a child under `terms` shall save its slots; None where it cannot, or where the
        user's own arguments say so."""
        if FLAG not in terms.charge.engine.capabilities.flags:
            return None
        if {FLAG, "--mmproj"} & set(terms.charge.launch.extra):
            return None
        if self._folder is None:
            with contextlib.suppress(OSError):
                home = paths.private(paths.cache())
                self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home))
        return self._folder

    async def save(self, child: Child, following: Terms) -> None:
        """Keep what an empty child has read for one under `following`, if that can use it."""
        terms = child.terms
        same = terms.launch == following.launch and terms.charge.engine == following.charge.engine
        drafts = any(kind.startswith("draft") for kind in following.setting.speculation.types)
        if not child.keeps_slots or not same or drafts or not self._fits(child):
            return
        kept: list[_Kept] = []
        with contextlib.suppress(TimeoutError, httpx.HTTPError, EngineError):
            async with asyncio.timeout(self._seconds):
                for state in await child.server.slots():
                    # An idle slot does not tell its depth; one that was used has had a task.
                    if state.task is not None:
                        name = f"{state.id}.bin"
                        tokens = await child.server.save_slot(state.id, name)
                        kept.append(_Kept(state.id, name, tokens))
        self._terms, self._kept = following, tuple(kept)

    async def restore(self, child: Child) -> None:
        """Give a child that is ready what was kept for it; nothing is kept afterwards."""
        kept, self._kept = self._kept, ()
        if not kept:
            return
        done: list[_Kept] = []
        with contextlib.suppress(TimeoutError, httpx.HTTPError, EngineError):
            if child.keeps_slots and self._terms is not None and self._fit_for(child):
                async with asyncio.timeout(self._seconds):
                    for one in kept:
                        await child.server.restore_slot(one.slot, one.name)
                        done.append(one)
        self._remove(kept)
        tokens = sum(one.tokens for one in done)
        self._note(f"{tokens} tokens in {len(done)} of {len(kept)} slots need not be read again")

    def _fit_for(self, child: Child) -> bool:
        return self._terms is not None and child.terms.launch == self._terms.launch

    def _fits(self, child: Child) -> bool:
        """Whether the disk has room for all that the child could have read."""
        if self._folder is None or child.need.ram is None or child.need.gpus is None:
            return False
        most = child.need.ram + sum(child.need.gpus.values())
        try:
            return shutil.disk_usage(self._folder).free > 2 * most
        except OSError:
            return False

    def _remove(self, kept: Sequence[_Kept]) -> None:
        for one in kept:
            if self._folder is not None:
                with contextlib.suppress(OSError):
                    (self._folder / one.name).unlink(missing_ok=True)

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def remove_left_behind() -> None:
    """Remove what a daemon that was killed has left; call it while no other runs."""
    for folder in paths.cache().glob(f"{_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)
