"""What systemd is told of the daemon: the protocol of sd_notify(3).

Datagrams of `NAME=value` lines go to the socket that NOTIFY_SOCKET names, in the file system or
(with a leading "@") in the abstract namespace. Without the variable every call does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping, MutableMapping

_log = logging.getLogger(__name__)

_OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_SEND_SECONDS = 1.0
_LONGEST_STATUS = 200
_FEEDS_A_PERIOD = 3


class Notifier:
    """Tells systemd. `period` is the watchdog's in seconds, None where it does not watch us."""

    def __init__(self, address: str | None = None, period: float | None = None) -> None:
        self.period = period if address is not None else None
        self._address = _connectable(address)
        self._socket: socket.socket | None = None
        self._status = ""

    @classmethod
    def take(cls, environment: MutableMapping[str, str]) -> Notifier:
        """Take the variables for us out of `environment`, so that no child speaks in our name."""
        notifier = cls(environment.get("NOTIFY_SOCKET"), _watchdog_seconds(environment))
        for name in _OURS:
            environment.pop(name, None)
        return notifier

    @property
    def feed_every(self) -> float | None:
        """Seconds between two beats: three fit a period, so that one may be late."""
        return None if self.period is None else self.period / _FEEDS_A_PERIOD

    def ready(self) -> None:
        """Started, or reloaded: requests are accepted."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """A new configuration is being read; `ready` ends this."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def status(self, text: str) -> None:
        """One sentence on what is going on; sent where it is another than before."""
        line = " ".join(text.split())[:_LONGEST_STATUS]
        if line != self._status:
            self._status = line
            self._tell(f"STATUS={line}")

    def extend(self, seconds: float) -> None:
        """Starting or stopping goes on: systemd shall wait so much longer from now on."""
        self._tell(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def beat(self) -> None:
        """Feed the watchdog. Call it only while nobody is stuck (see `pulse`)."""
        if self.period is not None:
            self._tell("WATCHDOG=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, *lines: str) -> None:
        """Send; a systemd that cannot be told is no reason to stop serving."""
        if self._address is None:
            return
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.settimeout(_SEND_SECONDS)
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.warning("cannot tell systemd %s: %s", lines[0], error)


def _connectable(address: str | None) -> str | bytes | None:
    """The address as `socket` takes it. What is no UNIX socket (vsock) is not spoken to."""
    if not address or address[0] not in "/@" or len(address) == 1:
        return None
    return b"\0" + os.fsencode(address[1:]) if address.startswith("@") else address


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """The watchdog's period where it is meant for this process (sd_watchdog_enabled(3))."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    with contextlib.suppress(ValueError):
        microseconds = int(environment.get("WATCHDOG_USEC", ""))
        if microseconds > 0:
            return microseconds / 1e6
    return None
