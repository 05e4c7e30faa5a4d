"""Settings that are added to requests, for engines that take them there."""

from __future__ import annotations

import json
from collections.abc import Mapping

_COMPLETIONS = (
    "/completion",
    "/completions",
    "/v1/completions",
    "/chat/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/infill",
)
_SPACE = b" \t\r\n"


def with_fields(body: bytes, path: str, fields: Mapping[str, float]) -> bytes:
    """`body` of a request for a completion with `fields` added; anything else as it is.

    They come first: of a name that is given twice the engine takes the later value, which is the
    client's own.
    """
    if path.partition("?")[0] not in _COMPLETIONS:
        return body
    start = body.lstrip(_SPACE)
    if not start.startswith(b"{"):
        return body
    rest = start[1:].lstrip(_SPACE)
    members = json.dumps(dict(fields))[1:-1].encode()
    return b"{" + members + (b"" if rest.startswith(b"}") else b", ") + rest
