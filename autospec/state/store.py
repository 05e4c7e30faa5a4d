"""What is kept: calibrations, what traffic taught, events, decisions.

Every table has the same columns: `key` says what a document is about, `name` which one of
several it is (a document of the same key and name is replaced), `at` when it was written.
Order is that of writing, whatever the clock does.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from autospec import paths
from autospec.state.database import MOST_BYTES, Database, Say

MOST_CHARACTERS = 2 << 20
"""The longest document."""

_TABLE_CHARACTERS = 8 << 20
_DAY = 86400.0

_log = logging.getLogger(__name__)


class Table(StrEnum):
    CALIBRATIONS = "calibrations"
    EPOCHS = "epochs"
    TRIALS = "trials"
    DEGRADATIONS = "degradations"
    EVENTS = "events"
    DECISIONS = "decisions"


@dataclass(frozen=True)
class Limits:
    """How many rows a key and the table keep, and for how many days.

    Age never takes a key's newest row: a clock that was wrong costs history, not the present.
    """

    each: int
    rows: int
    days: float


LIMITS = {
    Table.CALIBRATIONS: Limits(each=1, rows=100, days=730),
    Table.EPOCHS: Limits(each=24, rows=1000, days=90),
    Table.TRIALS: Limits(each=50, rows=1000, days=180),
    Table.DEGRADATIONS: Limits(each=20, rows=500, days=90),
    Table.EVENTS: Limits(each=2000, rows=2000, days=90),
    Table.DECISIONS: Limits(each=200, rows=2000, days=90),
}

_FIRST = tuple(
    f"CREATE TABLE {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, name TEXT, "
    "at REAL NOT NULL, document TEXT NOT NULL, UNIQUE (key, name))"
    for table in Table
)
MIGRATIONS = (_FIRST,)
"""The statements of each version, oldest first; a published one is never changed."""


@dataclass(frozen=True)
class Row:
    """`document` is JSON text; `at` in seconds since the epoch."""

    table: Table
    key: str
    document: str
    name: str | None = None
    at: float | None = None


@dataclass(frozen=True)
class Kept:
    """`id` grows with each row that is written."""

    id: int
    key: str
    name: str | None
    at: float
    document: str


def state_file() -> Path:
    return paths.state() / "state.db"


class Store:
    """The state file. No method raises because of the file: nothing is kept, nothing is found.

    What was wrong goes to `say`, once. Usable from any thread; slow disks block, so the
    daemon's loop writes through a `Recorder`.
    """

    def __init__(self, database: Database, say: Say) -> None:
        self._database = database
        self._say = say

    @classmethod
    def open(
        cls, path: Path | None = None, say: Say = _log.warning, *, most_bytes: int = MOST_BYTES
    ) -> Self:
        """The file at `path`, by default `state_file()`; made when first needed."""
        return cls(Database(path or state_file(), MIGRATIONS, say, most_bytes=most_bytes), say)

    @classmethod
    def reading(cls, path: Path | None = None, say: Say = _log.warning) -> Self:
        """The same for one who only looks: nothing is made, mended or changed."""
        return cls(Database(path or state_file(), MIGRATIONS, say, reading=True), say)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def put(self, *rows: Row) -> bool:
        """Keep all of `rows` or none; False for none. Too large a document is left out."""
        fitting = [row for row in rows if self._fits(row)]

        def work(connection: sqlite3.Connection) -> None:
            for row in fitting:
                connection.execute(
                    f"INSERT OR REPLACE INTO {row.table} (key, name, at, document) "
                    "VALUES (?, ?, ?, ?)",
                    (
                        _text(row.key),
                        None if row.name is None else _text(row.name),
                        time.time() if row.at is None else row.at,
                        _text(row.document),
                    ),
                )
            for table, key in {(row.table, _text(row.key)) for row in fitting}:
                _sweep(connection, table, key)

        return self._database.write(work)

    def newest(self, table: Table, key: str | None = None, most: int = 1000) -> list[Kept]:
        """The last `most` rows, of one `key` or of all, the newest first."""
        of_key = "" if key is None else "WHERE key = ? "
        query = f"SELECT id, key, name, at, document FROM {table} {of_key}ORDER BY id DESC LIMIT ?"
        wanted = (most,) if key is None else (_text(key), most)
        rows: list[tuple[object, ...]] = self._database.read(
            lambda connection: connection.execute(query, wanted).fetchall(), []
        )
        return [kept for kept in map(_kept, rows) if kept is not None]

    def _fits(self, row: Row) -> bool:
        if len(row.document) <= MOST_CHARACTERS:
            return True
        self._say(f"not kept among {row.table}: {len(row.document)} characters are too many")
        return False


def _sweep(connection: sqlite3.Connection, table: Table, key: str) -> None:
    limits = LIMITS[table]
    too_many = "ORDER BY id DESC LIMIT 1 OFFSET ?"
    sizes = f"SELECT id, sum(length(document)) OVER (ORDER BY id DESC) AS so_far FROM {table}"
    for condition, wanted in (
        (
            f"key = ? AND id <= (SELECT id FROM {table} WHERE key = ? {too_many})",
            (key, key, limits.each),
        ),
        (f"id <= (SELECT id FROM {table} {too_many})", (limits.rows,)),
        (f"id IN (SELECT id FROM ({sizes}) WHERE so_far > ?)", (_TABLE_CHARACTERS,)),
        (
            f"at < ? AND id NOT IN (SELECT max(id) FROM {table} GROUP BY key)",
            (time.time() - limits.days * _DAY,),
        ),
    ):
        connection.execute(f"DELETE FROM {table} WHERE {condition}", wanted)


def _text(text: str) -> str:
    """What UTF-8 can hold: a lone surrogate, as in a file's odd name, becomes a question mark."""
    return text.encode(errors="replace").decode()


def _kept(row: tuple[object, ...]) -> Kept | None:
    """A row as its columns must be; SQLite itself does not insist on types."""
    match row:
        case (int(number), str(key), str() | None as name, float() | int() as at, str(document)):
            return Kept(number, key, name, float(at), document)
    return None
