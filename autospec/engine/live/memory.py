"""The two memory files shared with the library, as layout.h lays them out.

Both are sealed memfds: no one can shrink them, which would kill the process that maps them
(SIGBUS, mmap(2)). The child gets them by descriptor. Times are CLOCK_MONOTONIC nanoseconds, which
`time.monotonic_ns` reads too.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import time
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

POLICY_MAGIC = 0x504C5341
RING_MAGIC = 0x524C5341
VERSION = 1

SLOTS = 64
POSITIONS = 64
LEVELS = 64
BUSY = 16
DEPTHS = 8
ENTRIES = 1024
SILENCE_SECONDS = 60.0

POLICY = np.dtype(
    [
        ("flags", "u4"),
        ("number", "u4"),
        ("positions", "u4"),
        ("levels", "u4"),
        ("busy", "u4"),
        ("depths", "u4"),
        ("depth_from", "f4", DEPTHS),
        ("level", "f4", LEVELS),
        ("acceptance", "f4", (POSITIONS, LEVELS)),
        ("threshold", "f4", (BUSY, DEPTHS, POSITIONS)),
    ]
)
POLICY_FILE = np.dtype(
    [
        ("magic", "u4"),
        ("version", "u4"),
        ("size", "u4"),
        ("sequence", "u4"),
        ("heartbeat_ns", "u8"),
        ("checksum", "u8"),
        ("policy", POLICY),
    ]
)
TOKEN = np.dtype([("p", "f4"), ("second", "f4"), ("purity", "f4")])
ROUND = np.dtype(
    [
        ("stamp", "u8"),
        ("began_ns", "u8"),
        ("draft_ns", "u8"),
        ("verify_ns", "u8"),
        ("slot", "u4"),
        ("busy", "u4"),
        ("depth", "u4"),
        ("policy", "u4"),
        ("seen", "u2"),
        ("drafted", "u2"),
        ("accepted", "u2"),
        ("flags", "u2"),
        ("token", TOKEN, POSITIONS),
    ]
)
RING_HEADER = np.dtype(
    [
        ("magic", "u4"),
        ("version", "u4"),
        ("size", "u4"),
        ("pid", "u4"),
        ("state", "u4"),
        ("reason", "u4"),
        ("detail", "u4"),
        ("policy", "u4"),
        ("head", "u8"),
        ("requests", "u8"),
        ("unverified", "u8"),
        ("contended", "u8"),
        ("torn", "u8"),
        ("stale", "u8"),
    ]
)
RING_BYTES = RING_HEADER.itemsize + ENTRIES * ROUND.itemsize

_WEIGHTS = 2 * np.arange(POLICY.itemsize // 4, dtype=np.uint64) + 1


class PolicyFlag(IntFlag):
    IN_FORCE = 1
    AT_LEAST_PLAIN = 2
    SOLE = 4


class RoundFlag(IntFlag):
    OBEYED = 1
    CUT = 2
    SKIPPED = 4
    FOREIGN = 8


class State(IntEnum):
    """`ABSENT`: the library never wrote, so it is not loaded."""

    ABSENT = 0
    WAITING = 1
    CHECKING = 2
    LIVE = 3
    INERT = 4


class Reason(IntEnum):
    NONE = 0
    MISSING_SYMBOL = 1
    BAD_HEADER = 2
    BAD_POLICY = 3
    STRANGE_PARAMS = 4
    STRANGE_CANDIDATES = 5
    STRANGE_SAMPLER = 6
    OUT_OF_STEP = 7
    CUT_IGNORED = 8
    TOO_MANY = 9
    STRANGE_ACCEPTANCE = 10


def _sealed(name: str, size: int) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class _File:
    """A sealed memfd and its mapping. OSError where the system has none (not Linux, no memory)."""

    def __init__(self, name: str, size: int) -> None:
        if sys.platform != "linux":
            raise OSError("sealed memory files exist on Linux only")
        self.descriptor = _sealed(name, size)
        self._map = mmap.mmap(self.descriptor, size)

    def close(self) -> None:
        """Forget it; a child that has mapped it keeps it. Views must not be used any more."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PolicyFile(_File):
    """Where policies are put; the library reads it at the start of each round."""

    def __init__(self) -> None:
        super().__init__("autospec-policy", POLICY_FILE.itemsize)
        self._file = np.frombuffer(self._map, dtype=POLICY_FILE)
        self._words = np.frombuffer(self._map, dtype="u4")[-len(_WEIGHTS) :]
        self._file["magic"] = POLICY_MAGIC
        self._file["version"] = VERSION
        self._file["size"] = POLICY_FILE.itemsize
        self.beat()

    def beat(self) -> None:
        """Say that we live. After SILENCE_SECONDS without, only proven policies stay in force."""
        self._file["heartbeat_ns"] = time.monotonic_ns()

    def write(self, policy: NDArray[np.void]) -> None:
        """Put `policy` (one POLICY record) in force from each round's next beginning on."""
        words = np.frombuffer(policy.tobytes(), dtype="u4")
        if len(words) != len(_WEIGHTS):
            raise ValueError("not one POLICY record")
        sequence = int(self._file["sequence"][0])
        writing = sequence + 1 + sequence % 2
        self._file["sequence"] = writing & 0xFFFFFFFF
        self._words[:] = words
        self._file["checksum"] = np.sum(words.astype(np.uint64) * _WEIGHTS, dtype=np.uint64)
        # 0 means "none yet" to the library.
        self._file["sequence"] = ((writing + 1) & 0xFFFFFFFF) or 2
        self.beat()


@dataclass(frozen=True)
class Status:
    """What the library says of itself.

    `head` counts the rounds reported, `requests` the generations begun, `unverified` the drafts
    that were never verified (cancelled requests), `contended` the calls it let through unseen,
    `torn` its readings of a policy that was being written, `stale` the drafts for which it stood
    aside because the daemon was silent. `policy` is the number of the policy it holds.
    """

    state: State
    reason: Reason
    detail: int
    pid: int
    policy: int
    head: int
    requests: int
    unverified: int
    contended: int
    torn: int
    stale: int


class RingFile(_File):
    """Where the library reports rounds; it overwrites the oldest of ENTRIES."""

    def __init__(self) -> None:
        super().__init__("autospec-rounds", RING_BYTES)
        self._header = np.frombuffer(self._map, dtype=RING_HEADER, count=1)
        self._rounds = np.frombuffer(self._map, dtype=ROUND, offset=RING_HEADER.itemsize)
        self._header["magic"] = RING_MAGIC
        self._header["version"] = VERSION
        self._header["size"] = RING_BYTES

    def status(self) -> Status:
        """A reading of the header; numbers without meaning read as INERT for a BAD_HEADER."""
        header = self._header.copy()[0]
        names = ("detail", "pid", "policy", "head", "requests", "unverified", "contended")
        numbers = {name: int(header[name]) for name in (*names, "torn", "stale")}
        try:
            state, reason = State(int(header["state"])), Reason(int(header["reason"]))
        except ValueError:
            state, reason = State.INERT, Reason.BAD_HEADER
        return Status(state=state, reason=reason, **numbers)

    def entry(self, index: int) -> NDArray[np.void] | None:
        """Round number `index` as one ROUND record; None when it is overwritten or half written."""
        place = self._rounds[index % ENTRIES : index % ENTRIES + 1]
        whole = 2 * index + 2
        if int(place["stamp"][0]) != whole:
            return None
        copy = place.copy()
        return copy if int(place["stamp"][0]) == whole else None
