"""The page at `/autospec/`: what the daemon does, to look at. It reads, and changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from autospec.daemon.front.errors import Refused, unknown_model
from autospec.errors import AutospecError

HOME = "/autospec/"

Json = dict[str, Any]
Ask = Callable[[Json], Awaitable[Json]]
"""Asks the daemon as the control socket does: `{"op": "status"}` and the like."""

_TYPES = {
    "index.html": "text/html",
    "page.css": "text/css",
    **dict.fromkeys(("page.js", "parts.js", "charts.js", "words.js"), "text/javascript"),
}
SHELL = frozenset({HOME, *(HOME + name for name in _TYPES)})
"""Holds no data, and is shown without a key: it asks for one."""

_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_PAGE = _SAFE | {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}
_LARGE = 1 << 15
_DATA = _SAFE | {"Cache-Control": "no-store"}


async def nobody(_request: Json) -> Json:
    """Answers for a front door that no daemon stands behind."""
    raise AutospecError("there is nothing to tell yet")


async def answer(
    method: str, target: str, ask: Ask, names: Collection[str], bound: str | None
) -> web.Response:
    """The answer to `method target`, whose path begins with `HOME`. Raises Refused.

    Where the address is `bound` to one of the models `names`, nothing is told of the others.
    """
    path, _, query = target.partition("?")
    if method not in ("GET", "HEAD"):
        raise Refused(405, "this page can only be read", headers={"Allow": "GET, HEAD"})
    name = path.removeprefix(HOME)
    if path in SHELL:
        name = name or "index.html"
        return web.Response(
            body=_file(name), content_type=_TYPES[name], charset="utf-8", headers=_PAGE
        )
    asked = parse_qs(query).get("model", [bound])[0]
    if asked is not None and (asked not in names or (bound is not None and asked != bound)):
        raise unknown_model(asked, (bound,) if bound is not None else tuple(names))
    try:
        document = await _document(name, ask, asked)
    except AutospecError as error:
        raise Refused(503, str(error), "server_error", "not_ready", {"Retry-After": "2"}) from error
    body = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    answered = web.Response(body=body, content_type="application/json", headers=_DATA)
    if len(body) > _LARGE:
        answered.enable_compression()
    return answered


async def _document(name: str, ask: Ask, model: str | None) -> Json:
    match name:
        case "status.json":
            return _seen(await ask({"op": "status"}), model)
        case "history.json":
            samples = (await ask({"op": "history"}))["samples"]
            return {"samples": _of(samples, model)}
        case "explain.json":
            return await ask({"op": "explain", "model": model})
        case _:
            raise Refused(404, f"there is no page {HOME}{name[:100]}", code="not_found")


def _seen(status: Json, model: str | None) -> Json:
    """Of the status document what the page shows, and the time `at` which it was true.

    Paths of the machine stay out.
    """
    models, events, starting = status["models"], status["events"], status["starting"]
    if model is not None:
        models = [one for one in models if one["name"] == model]
        events = [one for one in events if one["model"] == model]
        starting = starting if starting and starting["model"] == model else None
    engine = status["engine"]
    return {
        "at": time.time(),
        "version": status["version"],
        "for_seconds": status["daemon"]["for_seconds"],
        "engine": {"version": engine["version"], "applier": engine["applier"]},
        "starting": starting,
        "models": models,
        "events": events,
    }


def _of(samples: Mapping[str, Any], model: str | None) -> Mapping[str, Any]:
    return samples if model is None else {model: samples.get(model, [])}


@cache
def _file(name: str) -> bytes:
    return files("autospec.daemon.front").joinpath("page", name).read_bytes()
