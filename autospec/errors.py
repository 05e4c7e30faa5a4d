"""Errors that a user can act on.

    AutospecError              1   anything that failed for a reason we can name
    ├── UsageError             2   a wrong command line
    ├── ConfigError            2   a fault in autospec.toml (carries every fault found)
    ├── EngineError            3   llama.cpp is missing, broken or said something unreadable
    │   ├── EngineNotFound
    │   ├── EngineBroken           the binary dies at start (illegal instruction, missing library)
    │   └── EngineOutputError      junk where a number was needed; shows the line
    ├── ModelError             4   a model file is unreadable or does not fit its draft
    ├── CalibrationError       5   costs could not be measured
    ├── DaemonNotRunning       6   nobody answers on the control socket
    └── ServeError             7   no child could be brought up, and another try would not help

The number is the exit code. 130 means interrupted by the user.
"""

from __future__ import annotations


class AutospecError(Exception):
    """A failure with a sentence for the user and, where there is one, a way out.

    `hint` is one imperative sentence: what to do next.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(AutospecError):
    exit_code = 2


class ConfigError(AutospecError):
    exit_code = 2


class EngineError(AutospecError):
    exit_code = 3


class EngineNotFound(EngineError):
    pass


class EngineBroken(EngineError):
    pass


class EngineOutputError(EngineError):
    """The engine printed something we refuse to use; `line` is what it printed."""

    def __init__(self, message: str, *, line: str, hint: str | None = None) -> None:
        super().__init__(f"{message}: {line.strip()[:300]!r}", hint=hint)
        self.line = line


class ModelError(AutospecError):
    exit_code = 4


class CalibrationError(AutospecError):
    exit_code = 5


class DaemonNotRunning(AutospecError):
    exit_code = 6


class ServeError(AutospecError):
    exit_code = 7


INTERRUPTED = 130
