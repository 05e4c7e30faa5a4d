"""The parts of a GGUF file, in the order they lie in it: preamble, keys, tensor table.

Layout (versions 2 and 3, little-endian): magic, u32 version, u64 tensor count, u64 key count;
the keys, each a string, a u32 type and a value; the tensor table; then the data, from the next
multiple of `general.alignment` on. A string is a u64 length and its bytes.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from autospec.engine.gguf_bytes import TRUNCATED, Cursor
from autospec.text import printable

FIRST_COMPARED_TOKEN = 5
"""The engine compares the texts of tokens from this id on (the first few may differ)."""

LARGEST_SIZE_DIFFERENCE = 128
"""By how many tokens the engine lets the vocabularies of target and draft differ."""

_MAX_KEYS = 1 << 16
_MAX_KEY_BYTES = (1 << 16) - 1
_MAX_TENSORS = 1 << 17
_MAX_LIST = 1 << 23
_KEPT_STRING = 1024

_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING, _ARRAY = 8, 9

# ggml type -> (elements in a block, bytes of a block); types that are not here go unchecked
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8),
    29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip

_FOREIGN = {
    b"ggml": "an old GGML file",
    b"lmgg": "an old GGML file",
    b"tjgg": "an old GGML file (ggjt)",
    b"FUGG": "a GGUF file with its bytes swapped",
    b"PK\x03\x04": "a zip archive or a PyTorch checkpoint",
    b"vers": "a Git LFS pointer, not the file itself",
    b"<!DO": "a web page, not a model",
    b"<htm": "a web page, not a model",
}


@dataclass(frozen=True)
class Tokens:
    size: int
    digest: str
    prefixes: tuple[bytes, ...]


class Metadata:
    """The keys that were kept: scalars and short strings; lists only as `tokens`."""

    def __init__(self) -> None:
        self.values: dict[str, int | float | bool | str] = {}
        self.keys: set[str] = set()
        self.tokens: Tokens | None = None

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        return value if isinstance(value, str) and value else None

    def count(self, key: str) -> int | None:
        """A whole number that is not negative; anything else is unknown."""
        value = self.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        return None

    def flag(self, key: str) -> bool | None:
        value = self.values.get(key)
        return value if isinstance(value, bool) else None


def read_preamble(cursor: Cursor) -> tuple[int, int]:
    """Return (tensor count, key count)."""
    if cursor.remaining == 0:
        raise cursor.fault("the file is empty", hint=TRUNCATED)
    magic = cursor.take(min(4, cursor.remaining))
    if magic != b"GGUF":
        what = _FOREIGN.get(magic, f"something that begins with {magic!r}")
        raise cursor.fault(f"this is no GGUF model but {what}", hint="name a .gguf file")
    version = cursor.u32()
    if version & 0xFFFF == 0 and version:
        raise cursor.fault("big-endian GGUF", hint="convert the model for little-endian machines")
    if version not in {2, 3}:
        raise cursor.fault(
            f"GGUF version {version}, where 2 or 3 can be read", hint="convert the model again"
        )
    tensor_count, key_count = cursor.u64(), cursor.u64()
    if key_count > _MAX_KEYS:
        raise cursor.fault(f"{key_count} keys are more than any model has")
    if tensor_count > _MAX_TENSORS:
        raise cursor.fault(f"{tensor_count} tensors are more than any model has")
    return tensor_count, key_count


def read_metadata(cursor: Cursor, key_count: int) -> Metadata:
    metadata = Metadata()
    for _ in range(key_count):
        length = cursor.u64()
        if not 0 < length <= _MAX_KEY_BYTES:
            raise cursor.fault(f"a key of {length} bytes")
        key = _printable(cursor.take(length))
        if key in metadata.keys:
            raise cursor.fault(f"the key {key[:80]!r} occurs twice")
        metadata.keys.add(key)
        kind = cursor.u32()
        if scalar := _SCALARS.get(kind):
            metadata.values[key] = scalar.unpack(cursor.take(scalar.size))[0]
        elif kind == _STRING:
            length = cursor.u64()
            if length <= _KEPT_STRING:
                metadata.values[key] = _printable(cursor.take(length))
            else:
                cursor.skip(length)
        elif kind == _ARRAY:
            _array(cursor, key, metadata)
        else:
            raise cursor.fault(f"the key {key[:80]!r} has the unknown type {kind}")
    return metadata


def _array(cursor: Cursor, key: str, metadata: Metadata) -> None:
    kind, count = cursor.u32(), cursor.u64()
    if count > _MAX_LIST:
        raise cursor.fault(f"the key {key[:80]!r} holds a list of {count} values")
    if key == "tokenizer.ggml.tokens":
        if kind != _STRING:
            raise cursor.fault("the token list does not hold strings")
        metadata.tokens = _tokens(cursor, count)
    elif kind == _STRING:
        cursor.strings(count)
    elif scalar := _SCALARS.get(kind):
        cursor.skip(scalar.size * count)
    elif kind == _ARRAY:
        raise cursor.fault(f"the key {key[:80]!r} holds lists in a list, which GGUF readers refuse")
    else:
        raise cursor.fault(f"the key {key[:80]!r} holds a list of the unknown type {kind}")


def _tokens(cursor: Cursor, count: int) -> Tokens:
    head = min(count, FIRST_COMPARED_TOKEN)
    tail = min(count - head, LARGEST_SIZE_DIFFERENCE)
    whole, compared = hashlib.sha256(), hashlib.sha256()
    cursor.strings(head, whole.update)
    cursor.strings(count - head - tail, compared.update)
    prefixes = [compared.digest()]
    for _ in range(tail):
        cursor.strings(1, compared.update)
        prefixes.append(compared.digest())
    whole.update(compared.digest())
    return Tokens(count, whole.hexdigest(), tuple(prefixes))


def read_tensor_names(cursor: Cursor, count: int, alignment: int) -> list[str]:
    """Read the tensor table; raises ModelError where the data of a tensor is not all there."""
    names = []
    furthest, last = 0, ""
    for _ in range(count):
        length = cursor.u64()
        if not 0 < length <= _KEPT_STRING:
            raise cursor.fault(f"a tensor's name of {length} bytes")
        name = _printable(cursor.take(length))
        dimensions = cursor.u32()
        if dimensions > 4:
            raise cursor.fault(f"the tensor {name[:80]!r} has {dimensions} dimensions")
        elements = 1
        for _ in range(dimensions):
            elements *= cursor.u64()
        kind, offset = cursor.u32(), cursor.u64()
        per_block, block_bytes = _BLOCKS.get(kind, (1, 0))
        end = offset + elements // per_block * block_bytes
        if end > furthest:
            furthest, last = end, name
        names.append(name)
    if alignment & (alignment - 1):
        raise cursor.fault(f"general.alignment is {alignment}, which is no power of two")
    missing = furthest - (cursor.remaining - -cursor.position % alignment)
    if furthest and missing > 0:
        raise cursor.fault(
            f"the file is incomplete: {missing} bytes short of the end of the tensor {last[:80]!r}",
            hint=TRUNCATED,
        )
    return names


def _printable(raw: bytes) -> str:
    """Decode for people: what a terminal could act on is escaped."""
    return printable(raw.decode("utf-8", "backslashreplace"))
