"""Ways to wait that asyncio lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end, even when cancelled meanwhile; the cancellation follows then."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, object]) -> None:
    """Await `work`, or drop it when `event` comes first; it is over when this returns."""
    task = asyncio.create_task(work)
    alarm = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        alarm.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def within_or_none(seconds: float, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None when it took longer than `seconds` (it is dropped then)."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        return None
