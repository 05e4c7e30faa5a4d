"""`autospec explain` as the daemon answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from autospec.daemon.setting import Setting
from autospec.daemon.tuner import Tuner
from autospec.errors import UsageError


async def answer(
    request: Mapping[str, Any], tuned: Mapping[str, tuple[Tuner, Setting]]
) -> dict[str, Any]:
    """The daemon's answer to `{"op": "explain", "model": NAME}`; without a name, on all models."""
    names = wanted(request.get("model"), list(tuned))
    models = await asyncio.gather(*(tuned[name][0].explain(tuned[name][1]) for name in names))
    return {"running": True, "models": models}


def wanted(only: object, names: list[str]) -> list[str]:
    """The models that are asked for. UsageError for one that is not served."""
    if only is None:
        return names
    if only not in names:
        raise UsageError(
            f"no model is called {only!r}", hint=f"there is {', '.join(names) or 'none'}"
        )
    return [str(only)]
