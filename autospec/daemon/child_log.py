"""What a child prints, kept in a file of its own: the state folder, a few megabytes, mode 0600."""

from __future__ import annotations

import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path

from autospec import paths

_BYTES = 4 << 20
_LONGEST_LINE = 4000


class _Quiet(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Lose the line: a full disk is no reason to stop serving."""


class ChildLog:
    """Call it with each line."""

    def __init__(self, handler: RotatingFileHandler) -> None:
        self._handler = handler

    @staticmethod
    def folder() -> Path:
        return paths.state() / "logs"

    @classmethod
    def open(cls, name: str) -> ChildLog:
        path = paths.private(cls.folder()) / f"{name}.log"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        handler = _Quiet(path, maxBytes=_BYTES, backupCount=1)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        return cls(handler)

    def __call__(self, line: str) -> None:
        text = line[:_LONGEST_LINE]
        self._handler.handle(logging.LogRecord("llama", logging.INFO, "", 0, text, None, None))
