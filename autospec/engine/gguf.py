"""What a GGUF file says of its model, read from the header alone."""

from __future__ import annotations

import hashlib
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autospec.engine.gguf_bytes import Cursor
from autospec.engine.gguf_layout import Metadata, read_metadata, read_preamble, read_tensor_names
from autospec.errors import ModelError

if TYPE_CHECKING:
    from os import stat_result
    from pathlib import Path

_RECURRENT_KEYS = (".ssm.", ".wkv.", ".shortconv.", ".kda.", ".attention.recurrent_layers")


@dataclass(frozen=True)
class GgufHeader:
    """One model file (or the first of its shards). None is what the file does not say.

    `kind` is `general.type` (model, adapter, mmproj, …). `layers` counts blocks, `context`
    tokens, `embedding` the width. `tokens_digest` is a SHA-256 over the token list and the bos
    and eos ids; `prefix_digests[i]` is one over tokens FIRST_COMPARED_TOKEN to
    `vocab_size − len(prefix_digests) + 1 + i`, so that vocabularies which differ a little in
    size can be compared without keeping them. `size_bytes` and `tensor_count` are totals over
    all shards. `has_mtp`: layers that predict further tokens are there; None where only another
    shard can tell. `recurrent`: some layer keeps a state that cannot drop a suffix. `embeds`:
    made for embeddings, not for writing text.
    """

    path: Path
    architecture: str
    size_bytes: int
    tensor_count: int
    kind: str | None = None
    name: str | None = None
    layers: int | None = None
    context: int | None = None
    embedding: int | None = None
    vocab_size: int | None = None
    tokenizer_model: str | None = None
    tokenizer_pre: str | None = None
    tokens_digest: str | None = None
    prefix_digests: tuple[bytes, ...] = field(default=(), repr=False)
    bos_id: int | None = None
    eos_id: int | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    file_type: int | None = None
    split_index: int = 0
    split_count: int = 1
    has_mtp: bool | None = False
    recurrent: bool = False
    embeds: bool = False


def read_header(path: Path) -> GgufHeader:
    """Read the header of the GGUF file at `path`, and see that all of its shards are there.

    Raises ModelError with what is wrong and where: no file, another format, big-endian,
    version 1, truncated, counts or lengths that cannot be, a duplicate key, a missing shard.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{path} is not a file", hint="name the .gguf file itself")
        with path.open("rb") as file:
            return _header(Cursor(file, status.st_size, path), path, status)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(
            f"{str(path)!r} cannot be read: {reason}", hint="check the path and who may read it"
        ) from error


def _header(cursor: Cursor, path: Path, status: stat_result) -> GgufHeader:
    tensor_count, key_count = read_preamble(cursor)
    metadata = read_metadata(cursor, key_count)
    architecture = metadata.text("general.architecture")
    if architecture is None:
        raise cursor.fault("general.architecture is missing")
    names = read_tensor_names(cursor, tensor_count, metadata.count("general.alignment") or 32)
    split_index = metadata.count("split.no") or 0
    split_count = metadata.count("split.count") or 1
    own = metadata.count
    tokens = metadata.tokens
    return GgufHeader(
        path=path,
        architecture=architecture,
        size_bytes=_total_size(path, status.st_size, split_index, split_count),
        tensor_count=own("split.tensors.count") or tensor_count,
        kind=metadata.text("general.type"),
        name=metadata.text("general.name"),
        layers=own(f"{architecture}.block_count"),
        context=own(f"{architecture}.context_length"),
        embedding=own(f"{architecture}.embedding_length"),
        vocab_size=tokens.size if tokens else own(f"{architecture}.vocab_size"),
        tokenizer_model=metadata.text("tokenizer.ggml.model"),
        tokenizer_pre=metadata.text("tokenizer.ggml.pre"),
        tokens_digest=_with_ids(metadata),
        prefix_digests=tokens.prefixes if tokens else (),
        bos_id=own("tokenizer.ggml.bos_token_id"),
        eos_id=own("tokenizer.ggml.eos_token_id"),
        add_bos=metadata.flag("tokenizer.ggml.add_bos_token"),
        add_eos=metadata.flag("tokenizer.ggml.add_eos_token"),
        file_type=own("general.file_type"),
        split_index=split_index,
        split_count=split_count,
        has_mtp=_has_mtp(own(f"{architecture}.nextn_predict_layers"), names, split_count),
        recurrent=any(
            key.startswith(architecture + mark) for key in metadata.keys for mark in _RECURRENT_KEYS
        ),
        embeds=metadata.flag(f"{architecture}.attention.causal") is False
        or bool(own(f"{architecture}.pooling_type")),
    )


def _with_ids(metadata: Metadata) -> str | None:
    if metadata.tokens is None:
        return None
    ids = [metadata.count(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")]
    return hashlib.sha256(f"{metadata.tokens.digest} {ids}".encode()).hexdigest()


def _has_mtp(layers: int | None, names: list[str], split_count: int) -> bool | None:
    """Whether the layers announced by `nextn_predict_layers` are in the file.

    Some converters leave the tensors out and the key in.
    """
    if not layers:
        return False
    if any(".nextn." in name for name in names):
        return True
    return None if split_count > 1 else False


def _total_size(path: Path, size: int, index: int, count: int) -> int:
    """Bytes of all shards; raises ModelError unless `path` is the first and none is missing."""
    if count == 1:
        return size
    match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if match is None or int(match[2]) != index + 1 or int(match[3]) != count:
        raise ModelError(
            f"{path} is shard {index + 1} of {count}, but its name does not say so",
            hint=f"name it …-{index + 1:05d}-of-{count:05d}.gguf again, as the engine expects",
        )
    shards = [
        path.with_name(f"{match[1]}-{n:05d}-of-{count:05d}.gguf") for n in range(1, count + 1)
    ]
    if index != 0:
        raise ModelError(
            f"{path} is shard {index + 1} of {count}", hint=f"name the first one: {shards[0]}"
        )
    missing = [shard for shard in shards if not shard.is_file()]
    if missing:
        raise ModelError(
            f"{len(missing)} of {count} shards are missing, first {missing[0]}",
            hint="download all shards into one folder",
        )
    return sum(shard.stat().st_size for shard in shards)
