"""Reads which shared libraries an ELF file asks for (System V ABI, chapters 4 and 5).

Nothing is executed: `ldd` would run the file's own loader.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

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
        with path.open("rb") as file:
            return _links(file)
    except (OSError, ValueError, OverflowError, struct.error):
        return None


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def _links(file: BinaryIO) -> Links | None:
    magic = _read(file, 0, 6)
    if magic[:4] != b"\x7fELF" or magic[4] not in (1, 2) or magic[5] not in (1, 2):
        return None
    wide, order = magic[4] == 2, "<" if magic[5] == 1 else ">"
    segments = _segments(file, order, wide=wide)
    dynamic = next((one for one in segments if one.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return Links()
    entry = struct.Struct(order + ("qQ" if wide else "iI"))
    count = min(dynamic.size // entry.size, _MAX_ENTRIES)
    table = _read(file, dynamic.offset, count * entry.size)
    found = list(itertools.takewhile(lambda one: one[0] != _DT_NULL, entry.iter_unpack(table)))
    tags = dict(found)
    start = _file_offset(segments, tags.get(_DT_STRTAB, 0))
    strings = _read(file, start, min(tags.get(_DT_STRSZ, 0), _MAX_STRINGS))

    def names(wanted: int) -> tuple[str, ...]:
        return tuple(_string(strings, value) for tag, value in found if tag == wanted)

    def folders(wanted: int) -> tuple[str, ...]:
        return tuple(part for name in names(wanted) for part in name.split(":") if part)

    return Links(names(_DT_NEEDED), folders(_DT_RPATH), folders(_DT_RUNPATH))


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    # Not mapped into memory: a file that a compiler is just rewriting would end us by SIGBUS.
    file.seek(at)
    data = file.read(size)
    if len(data) < size:
        raise ValueError("the file ends too early")
    return data


def _segments(file: BinaryIO, order: str, *, wide: bool) -> list[_Segment]:
    header = _read(file, 0, 64 if wide else 52)
    table = struct.unpack_from(order + ("Q" if wide else "I"), header, 32 if wide else 28)[0]
    size, count = struct.unpack_from(order + "HH", header, 54 if wide else 42)
    layout = struct.Struct(order + ("I4xQQ8xQ" if wide else "III4xI"))
    segments = []
    for index in range(min(count, _MAX_ENTRIES)):
        entry = _read(file, table + index * size, layout.size)
        segments.append(_Segment(*layout.unpack(entry)))
    return segments


def _file_offset(segments: list[_Segment], address: int) -> int:
    for one in segments:
        if one.kind == _PT_LOAD and one.address <= address < one.address + one.size:
            return one.offset + address - one.address
    raise ValueError("an address outside every segment")


def _string(strings: bytes, at: int) -> str:
    if at >= len(strings):
        raise ValueError("a string outside its table")
    end = strings.find(b"\0", at, at + _MAX_NAME)
    return strings[at : end if end >= 0 else at + _MAX_NAME].decode("utf-8", "replace")
