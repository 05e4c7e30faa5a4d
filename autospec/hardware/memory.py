"""Memory of the machine, and how much of it this process may have."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Memory:
    """Bytes. `limit` is the control group's, None for none. `available` is the machine's."""

    total: int
    available: int
    limit: int | None
    swap_total: int
    swap_free: int

    @property
    def usable(self) -> int:
        """The most that this process can ever have."""
        return self.total if self.limit is None else min(self.total, self.limit)


def memory(limit: int | None) -> Memory:
    main, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Memory(
        total=main.total,
        available=main.available,
        limit=limit if limit is not None and limit < main.total else None,
        swap_total=swap.total,
        swap_free=swap.free,
    )
