"""On which line of a TOML document each key and each list element stands.

The readers of TOML that there are keep no positions. This scanner supplies them; it expects
text that `tomllib` has already accepted, and so needs no error handling of its own.
"""

from __future__ import annotations

import re
import tomllib

Location = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r"""
      \"""(?:\\.|[^\\])*?"{3,5}(?!")
    | '''.*?'{3,5}(?!')
    | "(?:\\.|[^"\\])*"
    | '[^']*'
    """,
    re.DOTALL | re.VERBOSE,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]*")


class Positions:
    """Lines by location; a location is the path of keys and list indices to a value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted = 0
        self._line = 1
        self._lengths: dict[Location, int] = {}
        self._lines: dict[Location, int] = {}
        self._document()

    def line(self, location: Location) -> int:
        """The line of `location`, or of the nearest table around it that is written down."""
        for length in range(len(location), 0, -1):
            if found := self._lines.get(location[:length]):
                return found
        return 1

    def locations(self) -> frozenset[Location]:
        return frozenset(self._lines)

    def _document(self) -> None:
        table: Location = ()
        while self._skip(_BLANK) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Location:
        array = self._text.startswith("[[", self._at)
        self._at += 2 if array else 1
        keys = self._dotted_key()
        self._at += 2 if array else 1
        table: Location = ()
        for depth, key in enumerate(keys, start=1):
            table += (key,)
            self._mark(table)
            if array and depth == len(keys):
                self._lengths[table] = self._lengths.get(table, 0) + 1
            if table in self._lengths:
                table += (self._lengths[table] - 1,)
                self._mark(table)
        return table

    def _pair(self, table: Location) -> None:
        location = table
        for key in self._dotted_key():
            location += (key,)
            self._mark(location)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(location)

    def _value(self, location: Location) -> None:
        match self._text[self._at]:
            case "[":
                self._elements(location)
            case "{":
                self._inline_table(location)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_SCALAR)

    def _elements(self, location: Location) -> None:
        self._at += 1
        index = 0
        while self._text[self._skip(_BLANK)] != "]":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._mark((*location, index))
            self._value((*location, index))
            index += 1
        self._at += 1

    def _inline_table(self, location: Location) -> None:
        self._at += 1
        while self._text[self._skip(_BLANK)] != "}":
            if self._text[self._at] == ",":
                self._at += 1
            else:
                self._pair(location)
        self._at += 1

    def _dotted_key(self) -> list[str]:
        keys = []
        while True:
            start = self._skip(_SPACE)
            if self._text[start] in "\"'":
                raw = self._text[start : self._skip(_STRING)]
                keys.append(str(tomllib.loads(f"key = {raw}")["key"]))
            else:
                keys.append(self._text[start : self._skip(_BARE_KEY)])
            if self._text[self._skip(_SPACE)] != ".":
                return keys
            self._at += 1

    def _mark(self, location: Location) -> None:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        self._lines.setdefault(location, self._line)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        if found := pattern.match(self._text, self._at):
            self._at = found.end()
        return self._at
