"""Clients that pass through a gate, as the front door does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from autospec.daemon.gate import Gate
from autospec.engine.server import http_client

WITHIN = 60.0


async def ask(gate: Gate, **asked: object) -> tuple[int, httpx.Response]:
    """One request; returns the generation that answered, and the answer."""
    leave = await gate.enter(WITHIN)
    with gate.passing(leave):
        async with http_client(leave.endpoint) as client:
            body = {"prompt": "a", "n_predict": 8, **asked}
            answer = await client.post("/completion", json=body, timeout=WITHIN)
            return leave.generation, answer.raise_for_status()


async def stream(gate: Gate, began: Callable[[], None] = lambda: None, **asked: object) -> str:
    """One streamed request, to its end."""
    leave = await gate.enter(WITHIN)
    text = ""
    with gate.passing(leave):
        body = {"prompt": "a", "n_predict": 8, "stream": True, **asked}
        async with (
            http_client(leave.endpoint) as client,
            client.stream("POST", "/completion", json=body, timeout=WITHIN) as answer,
        ):
            async for piece in answer.aiter_text():
                began()
                text += piece
    return text


@dataclass
class Load:
    """What steady clients have seen."""

    answered: list[int] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)


@asynccontextmanager
async def load(gate: Gate, *, clients: int = 2, **asked: object) -> AsyncIterator[Load]:
    """Clients that ask again as soon as they are answered: never an idle moment."""
    seen = Load()

    async def client() -> None:
        while True:
            try:
                generation, _ = await ask(gate, **asked)
            except httpx.HTTPError as error:
                seen.failed.append(error)
            else:
                seen.answered.append(generation)

    tasks = [asyncio.create_task(client()) for _ in range(clients)]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
