"""Is every loop that owns something still turning? Each gives its word when it turns next.

A timer that pings a watchdog proves that the timer runs. Here the owner of a child promises,
before it waits for anything, how long that may take; whoever lets a promise run out is stuck.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import NoReturn

from autospec.daemon.events import Events
from autospec.daemon.notify import Notifier

_EVERY = 1.0


class Pulse:
    """The word of one owner. Only the owner calls `promise` and `rest`; everybody may read.

    `due` is in seconds of the monotonic clock; infinite: the owner has nothing to do.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.doing = ""
        self.due = math.inf

    def promise(self, within: float, doing: str) -> None:
        """The owner will be back within so many seconds, and meanwhile it is `doing` this."""
        self.doing = doing
        self.due = time.monotonic() + within

    def rest(self) -> None:
        """Nothing is due: the owner has ended, or waits for others, for as long as it takes."""
        self.doing = ""
        self.due = math.inf


def stuck(pulses: Iterable[Pulse], now: float) -> Pulse | None:
    """The owner whose promise has been broken the longest, None when all keep theirs."""
    late = [pulse for pulse in pulses if pulse.due < now]
    return min(late, key=lambda pulse: pulse.due, default=None)


async def heartbeat(
    notifier: Notifier,
    pulses: Callable[[], Iterable[Pulse]],
    sentence: Callable[[], str],
    events: Events,
) -> NoReturn:
    """Tell systemd what goes on, and feed its watchdog as long as no owner is stuck."""
    every = min(_EVERY, notifier.feed_every or _EVERY)
    said: Pulse | None = None
    while True:
        notifier.status(sentence())
        late = stuck(pulses(), time.monotonic())
        if late is None:
            notifier.beat()
        elif late is not said:
            events.add(f"{late.owner} is stuck: {late.doing} takes too long", level="error")
        said = late
        await asyncio.sleep(every)
