"""What was measured so far, kept line by line, so that an interrupted benchmark goes on.

One JSON object a line in the cache, in a file named by everything that the figures depend on.
A line that was cut off by the end of the process is dropped; the work behind it is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from autospec import paths

Record = dict[str, Any]


def key_of(what: object) -> str:
    """The name of a journal, from whatever JSON can hold."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


class Journal:
    """The records of one benchmark. `add` returns once the line is with the system."""

    def __init__(self, key: str) -> None:
        folder = paths.private(paths.cache() / "bench")
        self.path = folder / f"{key}.jsonl"
        self.records: list[Record] = []
        if self.path.exists():
            self._recover()

    def of(self, kind: str) -> list[Record]:
        """The records of one kind, oldest first."""
        return [record for record in self.records if record["kind"] == kind]

    def add(self, kind: str, fields: Record) -> Record:
        record = {"kind": kind, **fields}
        line = json.dumps(record, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self.records.append(record)
        return record

    def forget(self) -> None:
        """Begin anew."""
        self.path.unlink(missing_ok=True)
        self.records.clear()

    def _recover(self) -> None:
        """Read what is whole, and cut off what is not, so that lines can follow."""
        whole = 0
        data = self.path.read_bytes()
        for line in data.splitlines(keepends=True):
            record = None
            with contextlib.suppress(ValueError, RecursionError):
                record = json.loads(line)
            if not line.endswith(b"\n") or not isinstance(record, dict) or "kind" not in record:
                break
            self.records.append(record)
            whole += len(line)
        if whole < len(data):
            with self.path.open("r+b") as file:
                file.truncate(whole)


def results_path(model: str, stamp: str) -> Path:
    """Where the report of a finished benchmark is kept."""
    return paths.private(paths.cache() / "bench" / "results") / f"{model}-{stamp}.json"
