"""A bounded little-endian reader: the only code that touches the raw bytes of a GGUF file.

A model file is hostile input. Every length is checked against what the file holds *before*
anything is read, and no more than one window is held in memory.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

from autospec.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WINDOW = 1 << 20
"""Bytes held at a time, and so the longest string that a list may contain."""

LIMIT = 1 << 27
"""Bytes that all metadata of a file may take: 128 MiB, five times the largest seen."""

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

TRUNCATED = "compare its size with the source's, and download it again"
DAMAGED = "check the file against its checksum, or convert the model again"


class Cursor:
    """Reads forward through `file`, which is `size` bytes long; `path` is for messages.

    Raises ModelError where a value would reach past the end of the file or past LIMIT.
    """

    def __init__(self, file: BinaryIO, size: int, path: Path) -> None:
        self._file = file
        self._size = size
        self._path = path
        self._window = b""
        self._at = 0
        self._base = 0

    @property
    def position(self) -> int:
        return self._base + self._at

    @property
    def remaining(self) -> int:
        return self._size - self.position

    def fault(self, sentence: str, hint: str = DAMAGED) -> ModelError:
        return ModelError(f"{self._path}: {sentence} (at byte {self.position})", hint=hint)

    def _cut_off(self) -> ModelError:
        return self.fault(
            f"the file ends after {self._size} bytes, in the middle of its header", hint=TRUNCATED
        )

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def take(self, length: int) -> bytes:
        """Return the next `length` bytes, at most a window."""
        if length > WINDOW:
            raise self.fault(f"a value of {length} bytes is longer than any real one")
        self._fill(length)
        start = self._at
        self._at += length
        return self._window[start : self._at]

    def skip(self, length: int) -> None:
        self._check(length)
        target = self.position + length
        if length <= len(self._window) - self._at:
            self._at += length
            return
        self._file.seek(target)
        self._window, self._at, self._base = b"", 0, target

    def strings(self, count: int, emit: Callable[[bytes], object] | None = None) -> None:
        """Pass over `count` strings; `emit` gets their raw encoding (lengths and bytes) in spans.

        The encoding can be decoded in one way only, so a digest over the spans is a digest over
        the list.
        """
        if count * 8 > self.remaining:
            raise self._cut_off()
        while count:
            self._fill(8)
            length = _U64.unpack_from(self._window, self._at)[0]
            if 8 + length > WINDOW:
                raise self.fault(f"a string of {length} bytes in a list is no token")
            self._fill(8 + length)
            start = self._at
            count -= self._whole_strings(count)
            if emit:
                emit(self._window[start : self._at])

    def _whole_strings(self, count: int) -> int:
        """Advance over up to `count` strings that lie wholly in the window; return how many."""
        window, at, end, length_at = self._window, self._at, len(self._window), _U64.unpack_from
        left = count
        while left and at + 8 <= end:
            after = at + 8 + length_at(window, at)[0]
            if after > end:
                break
            at = after
            left -= 1
        self._at = at
        return count - left

    def _check(self, length: int) -> None:
        if length > self.remaining:
            raise self._cut_off()
        if self.position + length > LIMIT:
            raise self.fault(f"the header takes more than {LIMIT >> 20} MiB")

    def _fill(self, length: int) -> None:
        """Have at least `length` bytes in the window from the current position on."""
        held = len(self._window) - self._at
        if held >= length:
            return
        self._check(length)
        self._base += self._at
        self._window = self._window[self._at :] + self._file.read(WINDOW - held)
        self._at = 0
        if len(self._window) < length:
            raise self.fault("the file shrank while it was read", hint=TRUNCATED)
