"""Requests to one model as its owner sees them: by the gate's count where a gate stands before
the child, else by the child's own slots."""

from __future__ import annotations

import asyncio
import contextlib
import time

from autospec.daemon.child import Child
from autospec.daemon.gate import Gate, Way


class Traffic:
    """`load_seconds`: how long the last start took, which is how long clients are told to wait."""

    def __init__(self, gate: Gate | None, glance: float) -> None:
        self.gate = gate
        self.load_seconds = 0.0
        self._glance = glance

    def open(self, child: Child) -> None:
        self.load_seconds = child.load_seconds or 0.0
        if self.gate is not None:
            child.generation = self.gate.open(child.endpoint)
            self.gate.private_slots = child.keeps_slots

    def reopen(self) -> None:
        if self.gate is not None:
            self.gate.reopen()

    def hold(self, reason: str, *, before: float = 0.0) -> None:
        """Let new requests wait for a child that is started in `before` seconds at most."""
        if self.gate is not None:
            expected = before + self.load_seconds if self.load_seconds else None
            self.gate.hold(reason, expected=expected)

    def absolve(self, child: Child) -> None:
        """No request is to blame for the end of this child."""
        if self.gate is not None:
            self.gate.innocent.add(child.generation)

    def shut(self, reason: str) -> None:
        if self.gate is not None:
            self.gate.shut(reason)

    def in_flight(self, child: Child) -> int:
        return self.gate.in_flight(child.generation) if self.gate is not None else 0

    async def emptied(self, child: Child, within: float, *, everywhere: bool = False) -> bool:
        """Wait until no request is with the child (or any); False when some are after `within` s.

        Lost when the child ends meanwhile.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    if not await self._answers(child, everywhere=everywhere):
                        return True
                    await asyncio.sleep(self._glance)
        return False

    async def _answers(self, child: Child, *, everywhere: bool) -> bool:
        if child.gone:
            raise await child.lost()
        if self.gate is not None:
            return self.gate.in_flight(None if everywhere else child.generation) > 0
        await child.read()
        return child.watch.busy_now > 0

    def dozes(self, child: Child, since: float) -> bool:
        """Whether nobody has asked for the model for so long that it is to be unloaded.

        `since`: when it became ready, monotonic. Without a gate nobody could wake it again.
        """
        gate, after = self.gate, child.terms.charge.idle_unload
        if gate is None or after is None or gate.way is not Way.OPEN:
            return False
        if gate.waiting or gate.in_flight() or child.watch.busy_now:
            return False
        return time.monotonic() - max(gate.used, since) >= after

    def sleep(self, child: Child) -> str:
        """Let the next request wake the model; returns why it sleeps."""
        assert self.gate is not None
        after = child.terms.charge.idle_unload or 0.0
        self.gate.sleep(f"unloaded after {after:.0f} s without a request")
        return self.gate.reason

    async def wanted(self, otherwise: asyncio.Event) -> None:
        """Until a request asks for the sleeping model, or `otherwise` is set."""
        assert self.gate is not None
        knock = asyncio.create_task(self.gate.wanted())
        other = asyncio.create_task(otherwise.wait())
        try:
            await asyncio.wait({knock, other}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            knock.cancel()
            other.cancel()
