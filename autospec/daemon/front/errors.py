"""What the front door itself answers when something is wrong, in the words of each API."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from autospec.daemon.gate import GateRefusal


@dataclass
class Refused(Exception):
    """The answer to a request that does not reach a child. `kind` and `code` are OpenAI's."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def unknown_model(name: str, names: tuple[str, ...]) -> Refused:
    return Refused(
        404,
        f"The model {name[:100]!r} does not exist. Valid models: {', '.join(names)}",
        code="model_not_found",
    )


def no_child(refusal: GateRefusal) -> Refused:
    return Refused(
        503,
        str(refusal),
        "server_error",
        "model_failed" if refusal.gone else "model_not_ready",
        {"Retry-After": str(math.ceil(refusal.retry_after))},
    )


def busy(message: str, code: str) -> Refused:
    return Refused(503, message, "server_error", code, {"Retry-After": "5"})


def broken(message: str) -> Refused:
    return Refused(502, message, "server_error", "upstream_failed")


def response(refused: Refused, path: str) -> web.Response:
    """`path` is the request's: Anthropic's endpoints have another shape of errors."""
    return web.Response(
        status=refused.status,
        body=json.dumps(_shaped(refused, path)).encode(),
        headers={"Content-Type": "application/json; charset=utf-8", **refused.headers},
    )


def stream_event(refused: Refused, path: str) -> bytes:
    """The last event of a stream that cannot go on.

    The blank line before it ends whatever event the stream broke off in.
    """
    face = _face(path)
    body = json.dumps(_shaped(refused, path)).encode()
    if face == "responses":
        flat = {"type": "error", "code": refused.code, "message": refused.message, "param": None}
        body = json.dumps(flat).encode()
    named = b"" if face == "openai" else b"event: error\n"
    return b"\n\n" + named + b"data: " + body + b"\n\n"


def _face(path: str) -> str:
    bare = path.partition("?")[0]
    if bare.endswith("/v1/messages") or "/v1/messages/" in bare:
        return "anthropic"
    return "responses" if bare.endswith("/responses") else "openai"


def _shaped(refused: Refused, path: str) -> dict[str, Any]:
    if _face(path) == "anthropic":
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
        kinds |= {413: "request_too_large", 503: "overloaded_error"}
        default = "invalid_request_error" if refused.status < 500 else "api_error"
        kind = kinds.get(refused.status, default)
        return {"type": "error", "error": {"type": kind, "message": refused.message}}
    return {
        "error": {
            "message": refused.message,
            "type": refused.kind,
            "param": "model" if refused.code == "model_not_found" else None,
            "code": refused.code,
        }
    }
