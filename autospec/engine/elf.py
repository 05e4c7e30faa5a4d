"""Reads which shared libraries an ELF file asks for (System V ABI, chapters 4 and 5).

Nothing is executed: `ldd` would run the file's own loader.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 15, 29
_MAX_ENTRIES = 4096
_MAX_STRINGS = 16 << 20
_MAX_NAME = 4096


@dataclass(frozen=True)
class Links:
    """What the dynamic section names; paths still hold `$ORIGIN`."""

    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def read_links(path: Path) -> Links | None:
    """The libraries that `path` needs, or None where it is no ELF file that can be read."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _links(data)
    except (OSError, ValueError, struct.error):
        return None


def _links(data: mmap.mmap) -> Links | None:
    if data[:4] != b"\x7fELF" or data[4] not in (1, 2) or data[5] not in (1, 2):
        return None
    wide = data[4] == 2
    order = "<" if data[5] == 1 else ">"
    segments = list(_segments(data, order, wide=wide))
    dynamic = next(((at, size) for kind, at, _, size in segments if kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return Links()
    entry = struct.Struct(order + ("qQ" if wide else "iI"))
    found: list[tuple[int, int]] = []
    for index in range(min(dynamic[1] // entry.size, _MAX_ENTRIES)):
        tag, value = entry.unpack_from(data, dynamic[0] + index * entry.size)
        if tag == _DT_NULL:
            break
        found.append((tag, value))
    tags = dict(found)
    start = _file_offset(segments, tags.get(_DT_STRTAB, 0))
    if start is None:
        return None
    strings = data[start : start + min(tags.get(_DT_STRSZ, 0), _MAX_STRINGS)]

    def names(wanted: int) -> tuple[str, ...]:
        return tuple(_string(strings, value) for tag, value in found if tag == wanted)

    def folders(wanted: int) -> tuple[str, ...]:
        return tuple(part for name in names(wanted) for part in name.split(":") if part)

    return Links(names(_DT_NEEDED), folders(_DT_RPATH), folders(_DT_RUNPATH))


def _segments(data: mmap.mmap, order: str, *, wide: bool) -> list[tuple[int, int, int, int]]:
    """Program headers as (type, offset in the file, address, size in the file)."""
    table = struct.unpack_from(order + ("Q" if wide else "I"), data, 32 if wide else 28)[0]
    size, count = struct.unpack_from(order + "HH", data, 54 if wide else 42)
    segments = []
    for index in range(min(count, _MAX_ENTRIES)):
        at = table + index * size
        if wide:
            kind, _, offset, address, _, length = struct.unpack_from(order + "IIQQQQ", data, at)
        else:
            kind, offset, address, _, length = struct.unpack_from(order + "IIIII", data, at)
        segments.append((kind, offset, address, length))
    return segments


def _file_offset(segments: list[tuple[int, int, int, int]], address: int) -> int | None:
    for kind, offset, start, size in segments:
        if kind == _PT_LOAD and start <= address < start + size:
            return offset + address - start
    return None


def _string(strings: bytes, at: int) -> str:
    if at >= len(strings):
        raise ValueError("string outside its table")
    end = strings.find(b"\0", at, at + _MAX_NAME)
    return strings[at : end if end >= 0 else at + _MAX_NAME].decode("utf-8", "replace")
