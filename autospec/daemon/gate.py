"""Whether requests may pass to a child: its owner opens and shuts the gate, the front door asks.

    hold ⇄ open → hold          the child is away for a while: requests wait
      ↓      ↓
    asleep → (wanted) → hold    the child was unloaded: the first request wakes it
    shut                        it will not come back by itself: requests are refused at once

Every child is a *generation*. Requests that have passed are counted by generation, so that an
owner can switch to a new child and wait for the old one to empty. All calls are made from one
event loop; times are seconds of the monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from autospec.engine.launch import Endpoint
from autospec.engine.waiting import within_or_none
from autospec.errors import ServeError


class Way(StrEnum):
    HOLD = "hold"
    OPEN = "open"
    ASLEEP = "asleep"
    SHUT = "shut"


class GateRefusal(ServeError):
    """No child in time. `retry_after` is in seconds; `gone`: waiting would have been no use."""

    def __init__(self, reason: str, *, retry_after: float, gone: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.gone = gone


@dataclass(frozen=True)
class Pass:
    """Leave to send one request to the child of `generation` at `endpoint`."""

    endpoint: Endpoint
    generation: int


class Gate:
    """The gate of one model. `most_waiting` requests may wait at a time.

    `innocent` are the generations that were ended from outside: no request is to blame for it.
    `way` and `reason` are for everybody to read; only the owner of the child calls `open`,
    `hold`, `sleep` and `shut`. `private_slots`: the child can save slots for its owner's sake
    alone, and no client may ask it to. `fields` tells what is added to each request for a
    completion, if anything is.
    """

    def __init__(self, name: str, *, most_waiting: int = 256) -> None:
        self.name = name
        self.way = Way.HOLD
        self.reason = "not started yet"
        self.endpoint: Endpoint | None = None
        self.generation = 0
        self.waiting = 0
        self.expected: float | None = None
        self.innocent: set[int] = set()
        self.used = time.monotonic()
        self.private_slots = False
        self.fields: Callable[[], Mapping[str, float] | None] = lambda: None
        self._most_waiting = most_waiting
        self._passed: Counter[int] = Counter()
        self._changed = asyncio.Event()
        self._left = asyncio.Event()
        self._knock = asyncio.Event()

    def open(self, endpoint: Endpoint) -> int:
        """Let requests pass to a new child at `endpoint`; returns its generation."""
        self.generation += 1
        self.endpoint = endpoint
        self._turn(Way.OPEN, "ready")
        return self.generation

    def reopen(self) -> None:
        """Let requests pass again to the child that was there before `hold`."""
        self._turn(Way.OPEN, "ready")

    def hold(self, reason: str, *, expected: float | None = None) -> None:
        """Let new requests wait; those that have passed go on. `expected`: back in so many s."""
        self.expected = None if expected is None else time.monotonic() + expected
        self._turn(Way.HOLD, reason)

    def sleep(self, reason: str) -> None:
        """The child was unloaded; `wanted` returns when somebody asks for it."""
        self._knock.clear()
        self._turn(Way.ASLEEP, reason)

    def shut(self, reason: str) -> None:
        """Refuse at once, also those that wait."""
        self._turn(Way.SHUT, reason)

    def _turn(self, way: Way, reason: str) -> None:
        self.way, self.reason = way, reason
        self._changed.set()
        self._changed = asyncio.Event()

    async def wanted(self) -> None:
        """Until a request asks for a child that is asleep."""
        await self._knock.wait()

    def in_flight(self, generation: int | None = None) -> int:
        """Requests that have passed (to one child, or to any) and have not ended."""
        return self._passed.total() if generation is None else self._passed[generation]

    async def emptied(self, generation: int) -> None:
        """Until no request is in flight to the child of `generation`."""
        while self._passed[generation]:
            await self._left.wait()

    async def enter(self, within: float) -> Pass:
        """Wait at most `within` seconds for a child that takes requests. GateRefusal if none.

        The request counts only once it is inside `passing`.
        """
        deadline = time.monotonic() + within
        if self.way is not Way.OPEN and self.waiting >= self._most_waiting:
            raise GateRefusal(
                f"{self.name}: {self.reason}; {self.waiting} requests wait already",
                retry_after=self._retry_after(),
            )
        self.waiting += 1
        try:
            while self.way is not Way.OPEN or self.endpoint is None:
                if self.way is Way.SHUT:
                    raise GateRefusal(f"{self.name}: {self.reason}", retry_after=60.0, gone=True)
                if self.way is Way.ASLEEP:
                    self._knock.set()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise GateRefusal(
                        f"{self.name}: {self.reason}; no child within {within:.0f} s",
                        retry_after=self._retry_after(),
                    )
                await within_or_none(left, self._changed.wait())
            return Pass(self.endpoint, self.generation)
        finally:
            self.waiting -= 1

    @contextmanager
    def passing(self, leave: Pass) -> Iterator[None]:
        """While one request is with the child that `leave` names."""
        self._passed[leave.generation] += 1
        self.used = time.monotonic()
        try:
            yield
        finally:
            self._passed[leave.generation] -= 1
            if not self._passed[leave.generation]:
                del self._passed[leave.generation]
            self.used = time.monotonic()
            self._left.set()
            self._left = asyncio.Event()

    def _retry_after(self) -> float:
        """Seconds: when a child is expected back, at least one."""
        if self.expected is None:
            return 5.0
        return max(1.0, self.expected - time.monotonic())
