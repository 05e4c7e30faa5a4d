"""All waits and limits of an owner in one place, so that tests can shorten them."""

from __future__ import annotations

from dataclasses import dataclass, field

from autospec.daemon.lifecycle import Pace
from autospec.daemon.liveness import Patience

TURN_SECONDS = 60.0
"""Within which an owner's loop turns while it waits for nothing that has a limit of its own."""


@dataclass(frozen=True)
class Timing:
    """Seconds. `poll`: between two readings. `grace`: from SIGTERM to SIGKILL. `yielding`: how
    long new requests wait for a planned restart before they go on to the old child. `again`:
    until that is tried anew, twice as long each time. `gpu`: how long a GPU may take to give
    memory back. `saving`: how long slots' caches may take to be saved, and to be restored.
    `glance`: between two looks at whether the last request has ended."""

    pace: Pace = field(default_factory=Pace)
    patience: Patience = field(default_factory=Patience)
    poll: float = 1.0
    grace: float = 10.0
    yielding: float = 20.0
    again: float = 60.0
    longest_again: float = 900.0
    gpu: float = 15.0
    saving: float = 10.0
    glance: float = 0.05
