"""The daemon's log on a terminal or in a journal."""

from __future__ import annotations

import logging
import os
import sys

_JOURNAL_LEVELS = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


class _Journal(logging.Formatter):
    """journald has its own clock and reads the level from a prefix (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        return f"<{_JOURNAL_LEVELS.get(record.levelno, 5)}>{super().format(record)}"


def to_stderr() -> None:
    """Send the daemon's log to stderr, in the journal's form where stderr is the journal."""
    handler = logging.StreamHandler(sys.stderr)
    if "JOURNAL_STREAM" in os.environ:
        handler.setFormatter(_Journal("%(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    log = logging.getLogger("autospec")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
