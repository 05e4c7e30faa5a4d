"""The environment that a child of ours starts with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_STRAY_PREFIX = "LLAMA_ARG_"
_STRAY = frozenset({"LLAMA_API_KEY", "MTMD_BACKEND_DEVICE"})


def child_environment(
    base: Mapping[str, str], extra: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """`base` without what would act as a hidden command line, then `extra` on top.

    The engine reads every option from `LLAMA_ARG_*` too: a stray one contradicts what was
    measured, and one that a newer build has removed ends the server at start. Returns the
    environment and the names that were taken out, sorted. `extra` is ours and goes in
    unchanged; `LD_PRELOAD` and the rest of `base` stay as they are.
    """
    stray = sorted(name for name in base if name.startswith(_STRAY_PREFIX) or name in _STRAY)
    kept = {name: value for name, value in base.items() if name not in stray}
    return kept | dict(extra), tuple(stray)
