"""What a daemon leaves on disk about its children, and what the next one ends by it.

Children die with the daemon (see `engine.process`). What they started themselves may not, and
no second server must ever run beside such an orphan: they share ports, sockets and the GPU.
Only processes that bear the dead daemon's mark are touched; see `engine.tree`.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from autospec import paths
from autospec.daemon.caches import remove_left_behind
from autospec.engine.process import OUR_MARK
from autospec.engine.tree import Identity, kill_marked, marked
from autospec.errors import ServeError

_FILE = "children.json"
_MOST_BYTES = 1 << 20
_MARK = re.compile(r"[0-9a-f]{16}")
_END_SECONDS = 10.0


@dataclass(frozen=True)
class _Entry:
    pid: int
    started: int
    socket: str | None


class Roster:
    """The children of this daemon, kept in `folder`. A disk that is full costs only the names:
    the mark was written before the first child was started."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._entries: dict[Identity, _Entry] = {}
        self._write()

    def add(self, who: Identity, socket: Path | None) -> None:
        entry = _Entry(who.pid, who.started, None if socket is None else str(socket))
        self._entries[who] = entry
        with contextlib.suppress(OSError):
            self._write()

    def remove(self, who: Identity) -> None:
        self._entries.pop(who, None)
        with contextlib.suppress(OSError):
            self._write()

    def close(self) -> None:
        """All children have ended."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        document = {"mark": OUR_MARK, "children": [asdict(e) for e in self._entries.values()]}
        with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as file:
            json.dump(document, file)
        Path(file.name).replace(self._path)


def take_over(folder: Path | None = None) -> tuple[Roster, list[str]]:
    """End what an earlier daemon left running, and start a roster of our own.

    Returns it with sentences on what was found. Call it while the daemon's lock is held.
    ServeError when something could not be ended, or nothing can be written.
    """
    folder = paths.private(folder or paths.runtime())
    mark, entries = _read(folder / _FILE)
    said = []
    if mark is not None:
        found = marked(mark)
        if left := kill_marked(mark, _END_SECONDS):
            numbers = ", ".join(str(who.pid) for who in left)
            raise ServeError(
                f"processes of an earlier autospec cannot be ended: {numbers}",
                hint="a process that waits for a device ends when that answers, or at a reboot",
            )
        known = {(entry.pid, entry.started): entry for entry in entries}
        for who in found:
            what = "llama-server" if (who.pid, who.started) in known else "a process under it"
            said.append(f"ended {what} (pid {who.pid}) that an earlier autospec left running")
        _remove_sockets(folder, entries)
    remove_left_behind()
    try:
        return Roster(folder), said
    except OSError as error:
        raise ServeError(
            f"cannot write {folder / _FILE}: {error}",
            hint="let XDG_RUNTIME_DIR name a folder that is yours",
        ) from error


def _remove_sockets(folder: Path, entries: Iterable[_Entry]) -> None:
    """Of the sockets named, those that lie in our own folder."""
    for entry in entries:
        path = Path(entry.socket or "")
        if path.parent == folder and path.is_socket():
            path.unlink(missing_ok=True)


def _read(path: Path) -> tuple[str | None, list[_Entry]]:
    """The mark and the children of an earlier daemon; (None, []) for a file that makes no sense."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None, []
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None, []
    if not isinstance(document, dict):
        return None, []
    mark, children = document.get("mark"), document.get("children")
    if not isinstance(mark, str) or not _MARK.fullmatch(mark) or mark == OUR_MARK:
        return None, []
    listed = children if isinstance(children, list) else []
    return mark, [entry for child in listed if (entry := _entry(child)) is not None]


def _entry(child: object) -> _Entry | None:
    if not isinstance(child, dict):
        return None
    pid, started, socket = child.get("pid"), child.get("started"), child.get("socket")
    if type(pid) is not int or type(started) is not int or not isinstance(socket, str | None):
        return None
    return _Entry(pid, started, socket)
