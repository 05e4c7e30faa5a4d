"""Writes tiny GGUF files, right ones and wrong ones, byte by byte."""

import struct
from pathlib import Path
from typing import Any

TOKENS = [f"token{i}" for i in range(300)]

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(item: object) -> bytes:
    """A type and a value, chosen by the Python type."""
    match item:
        case bool():
            return struct.pack("<I?", BOOL, item)
        case int():
            return struct.pack("<II", U32, item)
        case float():
            return struct.pack("<If", F32, item)
        case str():
            return struct.pack("<I", STRING) + string(item)
        case bytes():
            return item
        case list() if item and isinstance(item[0], str):
            body = b"".join(string(text) for text in item)
            return struct.pack("<IIQ", ARRAY, STRING, len(item)) + body
        case list():
            body = b"".join(struct.pack("<i", number) for number in item)
            return struct.pack("<IIQ", ARRAY, I32, len(item)) + body
    raise TypeError(item)


def pairs(tokens: list[str] | None = None, **changes: Any) -> list[tuple[str, object]]:
    """The keys of a small llama; `changes` names keys with `__` for `.`; None takes one out."""
    keys: dict[str, object] = {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": "Tiny",
        "general.file_type": 1,
        "llama.block_count": 2,
        "llama.context_length": 4096,
        "llama.embedding_length": 64,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS if tokens is None else tokens,
        "tokenizer.ggml.token_type": [1] * 300,
        "tokenizer.ggml.merges": ["a b", "c d"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "x" * 5000,
    }
    keys |= {name.replace("__", "."): item for name, item in changes.items()}
    return [(key, item) for key, item in keys.items() if item is not None]


def tensor(name: str, elements: int = 32, kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack("<IQIQ", 1, elements, kind, offset)


def gguf(
    keys: list[tuple[str, object]],
    tensors: list[bytes] | None = None,
    *,
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
    data: int = 128,
) -> bytes:
    table = [tensor("token_embd.weight")] if tensors is None else tensors
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(table) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    head += b"".join(string(key) + value(item) for key, item in keys) + b"".join(table)
    return head + b"\0" * (-len(head) % 32) + b"\0" * data


def write(path: Path, raw: bytes | None = None, /, **changes: Any) -> Path:
    path.write_bytes(gguf(pairs(**changes)) if raw is None else raw)
    return path
