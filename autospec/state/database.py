"""One SQLite file that never stops its user.

Whatever is wrong with the file, work goes on without it and is said once. A file that cannot be
ours any more (corrupt, of a newer version, another program's, not writable) is renamed with a
time stamp and made anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from autospec import paths

APPLICATION = 0x61757370
"""Marks the file as ours (`PRAGMA application_id`): "ausp"."""

MOST_BYTES = 64 << 20
_WAIT = 2.0
_POLL = 0.02
_CACHE_KIB = 256
_WAL_BYTES = 4 << 20
_ASIDES = 3
_BESIDE = ("-wal", "-shm", "-journal")
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_REASONS = {
    sqlite3.SQLITE_FULL: "there is no room",
    sqlite3.SQLITE_BUSY: "another program has locked it",
    sqlite3.SQLITE_LOCKED: "another program has locked it",
    sqlite3.SQLITE_READONLY: "it cannot be written",
}

T = TypeVar("T")
Say = Callable[[str], None]


class _Unusable(Exception):
    """The file is not ours, or not any more; the message says why."""


class Database:
    """The file at `path`, with the tables that `migrations` make (statements of each version).

    Usable from any thread, one at a time. Raises nothing that file or disk cause: `say` gets a
    sentence. With `reading` the file is only looked at, and neither made nor mended.
    """

    def __init__(
        self,
        path: Path,
        migrations: Sequence[Sequence[str]],
        say: Say,
        *,
        reading: bool = False,
        most_bytes: int = MOST_BYTES,
        wait: float = _WAIT,
    ) -> None:
        self.path = path.absolute()
        self._migrations = migrations
        self._say = say
        self._reading = reading
        self._most_bytes = most_bytes
        self._wait = wait
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._said: set[str] = set()

    def read(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """What `work` finds; `otherwise` without a file, or with one that cannot be read."""
        if self._reading and not os.path.lexists(self.path):
            return otherwise
        return self._run(work, otherwise, "BEGIN")[0]

    def write(self, work: Callable[[sqlite3.Connection], None]) -> bool:
        """Carry `work` out as one transaction; False when nothing of it was kept."""
        done = self._run(work, None, "BEGIN IMMEDIATE")[1]
        if done and self._said:
            self._said.clear()
            self._say(f"{self.path} can be written again")
        return done

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _run(
        self, work: Callable[[sqlite3.Connection], T], otherwise: T, begin: str
    ) -> tuple[T, bool]:
        with self._lock:
            for last in (False, True):
                try:
                    return self._transaction(work, begin), True
                except (sqlite3.Error, OSError, UnicodeError, _Unusable) as error:
                    self._disconnect()
                    # What broke under our hands is looked at, and set aside, by the next opening.
                    if last or not _broken(error):
                        self._complain(error)
                        break
            return otherwise, False

    def _transaction(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        connection = self._connected()
        connection.execute(begin)
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return result

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._inode == _inode(self.path):
            return self._connection
        self._disconnect()
        if self._reading:
            self._connection = self._open_to_read()
        elif os.access(paths.private(self.path.parent), os.W_OK):
            with _alone(self.path.parent, self._wait):
                try:
                    self._connection = self._open()
                except _Unusable as reason:
                    self._set_aside(str(reason))
                    self._connection = self._open()
        else:
            self._connection = self._open_to_read()
        self._inode = _inode(self.path)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _open(self) -> sqlite3.Connection:
        """A connection that may write, to a file that was found sound and up to date."""
        try:
            # Never opened by us when it exists: closing would drop SQLite's locks (fcntl(2)).
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            self._look()
            if self.path.stat().st_uid == os.getuid():
                self.path.chmod(0o600)
            if not os.access(self.path, os.W_OK):
                raise _Unusable("this user may not write it") from None
        return self._checked(self._connect(""), self._prepare)

    def _open_to_read(self) -> sqlite3.Connection:
        self._look()
        try:
            return self._checked(self._connect("?mode=ro"), self._up_to_date)
        except sqlite3.OperationalError:
            # A folder that is read-only has no room for the index of the log (sqlite.org/wal.html).
            return self._checked(self._connect("?mode=ro&immutable=1"), self._up_to_date)

    def _look(self) -> None:
        there = self.path.lstat()
        if not stat.S_ISREG(there.st_mode):
            raise _Unusable("it is no plain file")
        if there.st_size > self._most_bytes:
            raise _Unusable(f"it has more than {self._most_bytes} bytes")

    def _connect(self, how: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path.as_uri() + how,
            timeout=self._wait,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        return connection

    def _checked(
        self, connection: sqlite3.Connection, check: Callable[[sqlite3.Connection], None]
    ) -> sqlite3.Connection:
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            check(connection)
        except BaseException as error:
            connection.close()
            if _broken(error):
                raise _Unusable("it is no database, or a broken one") from error
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            raise _Unusable("it is a broken database")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count = {self._most_bytes // page}")
        connection.execute("BEGIN IMMEDIATE")
        if _number(connection, "user_version") == 0 and not _schema(connection):
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        for version in range(self._verify(connection), len(self._migrations)):
            _migrate(connection, self._migrations[version], version + 1)
        connection.execute("COMMIT")

    def _up_to_date(self, connection: sqlite3.Connection) -> None:
        if self._verify(connection) < len(self._migrations):
            raise _Unusable("an older version of autospec wrote it")

    def _verify(self, connection: sqlite3.Connection) -> int:
        """The file's version, whose tables it has, and nothing else such as a stray trigger."""
        if _number(connection, "application_id") != APPLICATION:
            raise _Unusable("it belongs to another program")
        version = _number(connection, "user_version")
        if not 0 <= version <= len(self._migrations):
            raise _Unusable("a newer version of autospec wrote it")
        if _schema(connection) != _expected(self._migrations[:version]):
            raise _Unusable("its tables are others than autospec's")
        return version

    def _set_aside(self, reason: str) -> None:
        """Rename the file and what SQLite keeps beside it; the oldest of such are removed."""
        prefix = f"{self.path.name}.aside-"
        aside = self.path.with_name(f"{prefix}{time.time_ns()}")
        self.path.rename(aside)
        for ending in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(self.path.name + ending).rename(f"{aside}{ending}")
        self._say(
            f"{self.path} cannot be used: {reason}; it is now {aside.name}, a new one is made"
        )
        stamped: dict[str, list[Path]] = {}
        for file in self.path.parent.glob(f"{prefix}*"):
            stamped.setdefault(file.name.removeprefix(prefix).partition("-")[0], []).append(file)
        for stamp in sorted(stamped)[:-_ASIDES]:
            for file in stamped[stamp]:
                with contextlib.suppress(OSError):
                    file.unlink()

    def _complain(self, error: Exception) -> None:
        reason = _REASONS.get(_code(error), str(error))
        if reason not in self._said:
            self._said.add(reason)
            self._say(f"{self.path} cannot be used now: {reason}; what is learned may be lost")


def _code(error: BaseException) -> int:
    """SQLite's primary result code of `error`; 0 for an error of another kind."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _broken(error: BaseException) -> bool:
    """Whether the file's content is at fault; SQLite quotes what it cannot decode."""
    return _code(error) in _BROKEN or isinstance(error, UnicodeError)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        there = path.lstat()
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _schema(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    rows = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    return sorted(connection.execute(rows).fetchall())


def _migrate(connection: sqlite3.Connection, statements: Sequence[str], version: int) -> None:
    for statement in statements:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")


def _expected(migrations: Sequence[Sequence[str]]) -> list[tuple[str, str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        for version, statements in enumerate(migrations, start=1):
            _migrate(empty, statements, version)
        return _schema(empty)


@contextlib.contextmanager
def _alone(folder: Path, wait: float) -> Iterator[None]:
    """Keep other processes from opening, and so from setting aside, a file in `folder`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + wait
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OSError(errno.EBUSY, "another program is opening it") from None
                time.sleep(_POLL)
        yield
    finally:
        os.close(handle)
