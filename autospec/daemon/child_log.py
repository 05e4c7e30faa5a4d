"""What a child prints, kept in a file of its own: the state folder, a few megabytes, mode 0600."""

from __future__ import annotations

import functools
import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from autospec import paths
from autospec.errors import AutospecError

_log = logging.getLogger("autospec.child")
"""Silent unless the user wants the children's lines in the daemon's log too."""

_BYTES = 4 << 20
_LONGEST_LINE = 4000


class _PrivateFile(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        """Open the file, also the new one after each turn, for its owner alone."""
        opener = functools.partial(os.open, mode=0o600)
        return open(self.baseFilename, "a", encoding="utf-8", errors="replace", opener=opener)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Lose the line: a full disk is no reason to stop serving."""


class ChildLog:
    """The lines of the child `name`. Call it with each; `close` it."""

    def __init__(self, name: str, handler: RotatingFileHandler) -> None:
        self._name = name
        self._handler = handler

    @staticmethod
    def folder() -> Path:
        return paths.state() / "logs"

    @classmethod
    def open(cls, name: str) -> ChildLog:
        """The log of the model `name`. AutospecError where it cannot be written."""
        try:
            path = paths.private(cls.folder()) / f"{name}.log"
            handler = _PrivateFile(path, maxBytes=_BYTES, backupCount=1)
        except OSError as error:
            raise AutospecError(
                f"cannot keep llama-server's log: {error}",
                hint="let XDG_STATE_HOME name a folder that you may write to",
            ) from error
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        return cls(name, handler)

    def __call__(self, line: str) -> None:
        text = line[:_LONGEST_LINE]
        self._handler.handle(logging.LogRecord("llama", logging.INFO, "", 0, text, None, None))
        if _log.isEnabledFor(logging.INFO):
            said = "".join(char if char.isprintable() else " " for char in text)
            extra = {"model": self._name, "said": said}
            _log.info("%s | %s", self._name, said, extra=extra)

    def close(self) -> None:
        self._handler.close()
