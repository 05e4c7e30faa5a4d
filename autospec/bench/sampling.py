"""One row of a comparison: every arm asked the same, one after the other, in shuffled order."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import psutil

from autospec.bench.asking import FEWEST_TOKENS, Answer, ask
from autospec.bench.fleet import Fleet
from autospec.bench.suite import Cell
from autospec.bench.workloads import Request
from autospec.engine.server import Server
from autospec.hardware.load import ContentionReport, compare, sample


@dataclass(frozen=True)
class Sample:
    """What an arm made of a row. `ms` a generated token: of the answer's own time with one
    request, of the wall's time over all slots with several (prompts are evaluated within it).
    `answers` are digests of the texts. `extra` is what the arm tells of itself.
    """

    ms: float
    tokens: int
    prompt_tokens: int
    drafted: int
    accepted: int
    answers: tuple[str, ...]
    seconds: float
    extra: dict[str, Any]

    @property
    def telling(self) -> bool:
        return self.tokens >= FEWEST_TOKENS * len(self.answers)


async def measure(
    name: str, server: Server, requests: Sequence[Request], tokens: int
) -> tuple[float, list[Answer]]:
    """Ask all `requests` at once; the seconds it took, and the answers in order."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(ask(name, server, request.messages, tokens)) for request in requests
        ]
    return time.monotonic() - began, [task.result() for task in asked]


def sample_of(seconds: float, answers: Sequence[Answer], extra: dict[str, Any]) -> Sample:
    tokens = sum(answer.timings.predicted_n for answer in answers)
    ms = answers[0].ms if len(answers) == 1 else 1000 * seconds / max(tokens, 1)
    return Sample(
        ms=ms,
        tokens=tokens,
        prompt_tokens=sum(answer.timings.prompt_n for answer in answers),
        drafted=sum(answer.timings.drafted or 0 for answer in answers),
        accepted=sum(answer.timings.accepted or 0 for answer in answers),
        answers=tuple(hashlib.sha256(answer.text.encode()).hexdigest()[:16] for answer in answers),
        seconds=seconds,
        extra=extra,
    )


class Watcher:
    """Whether anything but the measurement used the machine between `start` and `report`."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self.start()

    def start(self) -> None:
        self._before, self._own = sample(), self._spent()

    def report(self) -> ContentionReport:
        return compare(self._before, sample(), self._spent() - self._own)

    def _spent(self) -> float:
        """Processor seconds of this process, the servers that run, and those that have ended."""
        own = os.times()
        spent = own.user + own.system + own.children_user + own.children_system
        for pid in self._pids():
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                spent += times.user + times.system
        return spent


async def play_block(
    fleet: Fleet,
    cell: Cell,
    rows: Sequence[tuple[int, Sequence[Request]]],
    tokens: int,
    order: random.Random,
) -> dict[int, dict[str, Any]]:
    """Let every arm answer `rows`, arm by arm; samples by row and arm, as plain data.

    With one row this is the row's comparison; several are one block where servers take turns.
    """
    found: dict[int, dict[str, Any]] = {number: {} for number, _ in rows}
    names = fleet.names
    order.shuffle(names)
    for name in names:
        for number, requests in rows:
            sample = await _sample(fleet, name, cell, requests, tokens)
            if sample is None:
                break
            found[number][name] = asdict(sample)
    return found


async def _sample(
    fleet: Fleet, name: str, cell: Cell, requests: Sequence[Request], tokens: int
) -> Sample | None:
    """What an arm makes of `requests`; None where it has failed for good."""
    sample = None
    async with fleet.alive(name):
        try:
            sample = await _once(fleet, name, cell, requests, tokens)
        except httpx.HTTPError:
            # A tuned arm may have ended its server for another setting that very moment.
            sample = await _once(fleet, name, cell, requests, tokens)
    return sample


async def _once(
    fleet: Fleet, name: str, cell: Cell, requests: Sequence[Request], tokens: int
) -> Sample | None:
    server = await fleet.get(name, cell.key)
    if server is None:
        return None
    arm = fleet.arms[name]
    arm.take()
    try:
        seconds, answers = await measure(name, server, requests, tokens)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group
    return sample_of(seconds, answers, arm.take())
