"""The values of autospec.toml that are more than a number or a word, read from text.

Every reader takes whatever TOML holds there and raises `ValueError` with what is wrong, also
for a wrong type: that is the error which pydantic collects.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autospec import paths
from autospec.config.faults import kind, shown
from autospec.engine.launch import Endpoint

DAY = 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
ADDRESS_PATTERN = r"^(unix:.+\.sock|(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5})$"
WORKER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*:[0-9]{1,5}$"
MOST_SOCKET_BYTES = 107
"""The kernel's limit for the path of a UNIX socket (unix(7))."""

TYPES_PATTERN = r"^[a-z0-9][a-z0-9-]*( *, *[a-z0-9][a-z0-9-]*)*$"


@dataclass(frozen=True)
class Address:
    """Where a model is reached: `host`:`port`, or a UNIX `socket`."""

    host: str = "127.0.0.1"
    port: int = 0
    socket: Path | None = None

    def __str__(self) -> str:
        if self.socket is not None:
            return f"unix:{self.socket}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return str(self) if self.socket else f"http://{self}"

    @property
    def private(self) -> bool:
        """Only this machine reaches it. A name other than localhost is not trusted to be."""
        if self.socket is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def on_host(self, host: str) -> Address:
        return Address(host, self.port)

    def on_port(self, port: int) -> Address:
        return Address(self.host, port)

    def endpoint(self, api_key_file: Path | None) -> Endpoint:
        return Endpoint(self.host, self.port, self.socket, api_key_file)


def text(value: object) -> str:
    """Text that can be handed to a program: not empty, no NUL."""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is {kind(value)}")  # noqa: TRY004 (see above)
    if not value.strip():
        raise ValueError("is empty")
    if "\0" in value:
        raise ValueError("holds a NUL character, which no program can be given")
    return value


def path(value: object, base: Path) -> Path:
    """A path: `~` is the home folder, and a relative one starts at `base`."""
    written = text(value)
    try:
        return base / Path(written).expanduser()
    except RuntimeError:
        raise ValueError(f"no home folder is known for {shown(written)}") from None


def key_file(value: object, base: Path) -> Path:
    """A path, or `credential:NAME` for a secret that systemd hands to the service."""
    written = text(value)
    if not written.startswith("credential:"):
        return path(written, base)
    name = written.removeprefix("credential:")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}", name):
        raise ValueError(f"{shown(name)} is not the name of a credential")
    return paths.credential(name)


def address(value: object, base: Path) -> Address:
    written = text(value)
    if not re.fullmatch(ADDRESS_PATTERN, written):
        raise ValueError(f"{shown(written)} is not an address")
    if written.startswith("unix:"):
        socket = path(written.removeprefix("unix:"), base)
        if len(os.fsencode(socket)) > MOST_SOCKET_BYTES:
            raise ValueError(f"{shown(written)} is longer than {MOST_SOCKET_BYTES} bytes")
        return Address(socket=socket)
    host, _, port = written.rpartition(":")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{port} is not a port")
    if host.startswith("["):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"{shown(host)} is not an IPv6 address") from None
    return Address(host, int(port))


def worker(value: object) -> str:
    """HOST:PORT of a `ggml-rpc-server`, whose notation has no IPv6 addresses."""
    written = text(value)
    host, _, port = written.rpartition(":")
    if not re.fullmatch(WORKER_PATTERN, written) or not host or not 1 <= int(port) <= 65535:
        raise ValueError(f"{shown(written)} is not a HOST:PORT")
    return written


def duration(value: object) -> float:
    """Seconds, from a number of seconds or text such as "90s", "2m", "1h30m"."""
    if isinstance(value, str) and re.fullmatch(DURATION_PATTERN, value):
        parts = re.findall(r"([0-9.]+)(ms|s|m|h|d)", value)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # Cut before it is made a float: TOML has whole numbers that none can hold.
        seconds = max(-1, min(value, 2 * DAY)) * 1.0
    else:
        raise ValueError(f"{shown(value)} is not a time")
    if not (math.isfinite(seconds) and 0 < seconds <= DAY):
        raise ValueError(f"{shown(value)} is out of range")
    return seconds


def written_duration(seconds: float) -> str:
    """The shortest text that `duration` reads back as `seconds`."""
    for unit in ("h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{seconds:g}s"


def split(value: object) -> object:
    """Text split into arguments as a shell would; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"cannot be split into arguments: {str(error).lower()}") from None


def argument(value: object) -> str:
    """One argument of a program; a number counts as its text."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    return "" if value == "" else text(value)


def variable(value: object) -> str:
    """The value of an environment variable; a whole number counts as its text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return "" if value == "" else text(value)


def speculation_types(value: object) -> Literal["auto", "off"] | tuple[str, ...]:
    """`auto`, `off` (as the engine's own `none`), or names as `--spec-type` takes them."""
    if not isinstance(value, list):
        names = [name.strip() for name in text(value).split(",")]
    else:
        names = [text(name).strip() for name in value]
    if not names:
        raise ValueError("names no type")
    for name in names:
        if not re.fullmatch(TYPES_PATTERN, name) or "," in name:
            raise ValueError(f"{shown(name)} is not the name of a speculation type")
    if names == ["auto"]:
        return "auto"
    if names in (["off"], ["none"]):
        return "off"
    if alone := {"auto", "off", "none"}.intersection(names):
        raise ValueError(f"{min(alone)} stands alone or not at all")
    return tuple(dict.fromkeys(names))
