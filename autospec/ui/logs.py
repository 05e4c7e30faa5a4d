"""The daemon's log: words on a terminal, entries with fields in the journal, JSON on demand."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

from autospec.errors import AutospecError

CHILD = "autospec.child"
"""The logger of what llama-server prints; silent unless somebody asks for it."""

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


class Form(StrEnum):
    HUMAN = "human"
    JOURNAL = "journal"
    JSON = "json"


def natural_form(stream: TextIO = sys.stderr) -> Form:
    """The journal's form where `stream` is the journal: JOURNAL_STREAM names it (systemd.exec(5)).

    The variable alone says little: a shell that systemd started has it too.
    """
    try:
        there = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return Form.HUMAN
    named = os.environ.get("JOURNAL_STREAM")
    return Form.JOURNAL if named == f"{there.st_dev}:{there.st_ino}" else Form.HUMAN


def to_stderr(form: Form | None = None, *, children: bool = False) -> None:
    """Send the daemon's log to stderr, or to the journal behind it.

    `form` None chooses by what stderr is; with `children` what they print comes too. A crash
    and the SIGABRT of a watchdog leave in it where the program was.
    """
    faulthandler.enable(sys.stderr)
    log = logging.getLogger("autospec")
    log.setLevel(logging.INFO)
    log.addHandler(handler(form or natural_form()))
    logging.getLogger(CHILD).setLevel(logging.INFO if children else logging.CRITICAL)


def handler(form: Form, stream: TextIO | None = None) -> logging.Handler:
    """What writes records in this form to `stream` (stderr)."""
    made: logging.Handler = logging.StreamHandler(stream or sys.stderr)
    match form:
        case Form.JOURNAL:
            made = Journal(stream or sys.stderr)
        case Form.JSON:
            made.setFormatter(_Json())
        case Form.HUMAN:
            made.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    return made


@contextlib.contextmanager
def errors_as(form: Form) -> Iterator[None]:
    """Where every line has to be JSON, write an error that ends the program as such a line."""
    try:
        yield
    except AutospecError as error:
        if form is not Form.JSON:
            raise
        words = f"{error} ({error.hint})" if error.hint else str(error)
        logging.getLogger("autospec").log(logging.ERROR, "%s", words)
        raise SystemExit(error.exit_code) from error


def told(text: str, level: int, form: Form) -> str:
    """`text` for stderr outside of the log; for the journal each line carries its level."""
    if form is not Form.JOURNAL:
        return text
    return "\n".join(f"<{_priority(level)}>{line}" for line in text.splitlines())


class _Json(logging.Formatter):
    """One object a line: `at` (UTC, ISO 8601), `level`, `model` or null, `source`, `text`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "model": getattr(record, "model", None),
            "source": _source(record),
            "text": getattr(record, "said", None) or record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class Journal(logging.StreamHandler[TextIO]):
    """Entries with fields, by journald's own protocol; without its socket, levels as prefixes.

    Fields: AUTOSPEC_MODEL, AUTOSPEC_SOURCE ("autospec" or "llama-server") and journald's own.
    """

    place = "/run/systemd/journal/socket"

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def format(self, record: logging.LogRecord) -> str:
        return told(super().format(record), record.levelno, Form.JOURNAL)

    def emit(self, record: logging.LogRecord) -> None:
        fields = _fields(record, logging.Formatter().format(record))
        try:
            self._socket.sendto(entry(fields), self.place)
        except OSError:
            super().emit(record)

    def close(self) -> None:
        self._socket.close()
        super().close()


def _fields(record: logging.LogRecord, text: str) -> Iterable[tuple[str, str]]:
    yield "MESSAGE", text
    yield "PRIORITY", str(_priority(record.levelno))
    yield "SYSLOG_IDENTIFIER", "autospec"
    yield "AUTOSPEC_SOURCE", _source(record)
    if model := getattr(record, "model", None):
        yield "AUTOSPEC_MODEL", model


def entry(fields: Iterable[tuple[str, str]]) -> bytes:
    """A datagram of journald's native protocol (systemd, JOURNAL_NATIVE_PROTOCOL).

    A value with a line break follows its name's line, after its length in 8 bytes.
    """
    parts = []
    for name, value in fields:
        raw = value.encode("utf-8", "replace")
        if b"\n" in raw:
            parts.append(name.encode() + b"\n" + len(raw).to_bytes(8, "little") + raw + b"\n")
        else:
            parts.append(name.encode() + b"=" + raw + b"\n")
    return b"".join(parts)


def _source(record: logging.LogRecord) -> str:
    return "llama-server" if record.name == CHILD else "autospec"


def _priority(level: int) -> int:
    return _PRIORITIES.get(level, 5)
