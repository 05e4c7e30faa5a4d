"""What the front door needs to know of a body, found piece by piece without building it.

A body may have hundreds of megabytes, of which most are one string. Regular expressions pass over
strings at the speed of C; nothing is kept but the keys of what is open. That the body is sound
JSON is the child's to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_DEPTH = 512
MOST_TOKENS = 500_000

_TOKEN = re.compile(rb'["{}\[\]:]')
_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_REMOTE = re.compile(r"\s*(https?|ftp|file):", re.IGNORECASE)
_FIELD = re.compile(
    rb'name="?model"?[^\r\n]{0,200}\r\n(?:[^\r\n]{1,200}\r\n){0,4}\r\n([^\r\n]{1,200})\r\n',
    re.IGNORECASE,
)
_OVERLAP = 2048
"""Bytes that a match of _FIELD may have; without a limit, a body of such fields would take the
square of its size in time."""
_KEPT = 512
"""Bytes of a string that are looked at: more than any name or scheme needs."""

_MEDIA = frozenset(
    f"{prefix}{kind}{suffix}"
    for kind in ("image", "audio", "video", "file")
    for prefix in ("", "input_")
    for suffix in ("", "_url")
)
_ADDRESS = frozenset({"url", "uri", "data"})


class TooComplex(ValueError):
    """Deeper or in more parts than any request needs."""


@dataclass
class Seen:
    """The first `model` at the top, if it is text, and the first `remote` address of media."""

    model: str | None = None
    remote: str | None = None


def scan(pieces: Iterable[bytes], *, media: bool = False) -> Seen:
    """Look through a JSON object. Without `media` it ends at `model`. Raises TooComplex."""
    scanner = _Scanner()
    for piece in pieces:
        scanner.feed(piece)
        if scanner.seen.remote or (scanner.seen.model is not None and not media):
            break
    return scanner.seen


class _Scanner:
    def __init__(self) -> None:
        self.seen = Seen()
        self._tokens = 0
        self._key: str | None = None
        self._open: list[tuple[bool, str | None]] = []
        self._string: bytearray | None = None
        self._ended: bytes | None = None
        self._cut = b""

    def feed(self, piece: bytes) -> None:
        data, at = (self._cut + piece, 0) if self._cut else (piece, 0)
        self._cut = b""
        while at < len(data):
            if self._string is not None:
                at = self._inside(data, at)
                continue
            found = _TOKEN.search(data, at)
            if found is None:
                return
            at = found.end()
            self._take(found[0])

    def _inside(self, data: bytes, at: int) -> int:
        """Pass over a string, or its part in this piece."""
        assert self._string is not None
        found = _INSIDE.match(data, at)
        end = found.end() if found else at
        if len(self._string) < _KEPT:
            self._string += data[at : min(end, at + _KEPT)]
        if end == len(data):
            return end
        if data[end] == 0x22:
            self._ended, self._string = bytes(self._string), None
        else:
            self._cut = data[end:]
            return len(data)
        return end + 1

    def _take(self, token: bytes) -> None:
        self._tokens += 1
        if self._tokens > MOST_TOKENS or len(self._open) > MOST_DEPTH:
            raise TooComplex
        ended, self._ended = self._ended, None
        is_object, owner = self._open[-1] if self._open else (False, None)
        if token == b":":
            self._key = _text(ended) if ended is not None and is_object else self._key
            return
        if ended is not None:
            self._value(ended, is_object=is_object, owner=owner)
        if token == b'"':
            self._string = bytearray()
        elif token in b"{[":
            self._open.append((token == b"{", self._key))
            self._key = None if token == b"{" else self._key
        elif self._open:
            self._key = self._open.pop()[1]

    def _value(self, raw: bytes, *, is_object: bool, owner: str | None) -> None:
        key = self._key
        if len(self._open) == 1 and is_object and key == "model" and self.seen.model is None:
            self.seen.model = _text(raw)
        elif key in _MEDIA or (key in _ADDRESS and (owner in _MEDIA or owner == "source")):
            text = _text(raw)
            if text is not None and _REMOTE.match(text) and self.seen.remote is None:
                self.seen.remote = text[:100]


def form_model(pieces: Iterable[bytes]) -> str | None:
    """The field `model` of a multipart form."""
    before = b""
    for piece in pieces:
        window = before + piece
        if found := _FIELD.search(window):
            return found[1].decode("utf-8", "replace")
        before = window[-_OVERLAP:]
    return None


def _text(raw: bytes) -> str | None:
    """What stands between the quotes, decoded; if it was cut off, as far as it goes."""
    text = raw[:_KEPT].decode("utf-8", "replace")
    for cut in range(min(13, len(text) + 1)):
        try:
            return str(json.loads(f'"{text[: len(text) - cut]}"', strict=False))
        except ValueError:
            continue
    return None
