"""What a GGUF file says of its model, read from the header alone."""

from __future__ import annotations

import hashlib
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autospec.engine.gguf_bytes import DAMAGED, TRUNCATED, Cursor
from autospec.engine.gguf_layout import Metadata, read_metadata, read_preamble, read_tensor_names
from autospec.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MOST_SHARDS = 10_000
_RECURRENT_KEYS = (".ssm.", ".wkv.", ".shortconv.", ".kda.", ".attention.recurrent_layers")


@dataclass(frozen=True)
class GgufHeader:
    """One model file (or the first of its shards). None is what the file does not say.

    `kind` is `general.type` (model, adapter, mmproj, …). `layers` counts blocks, `context`
    tokens, `embedding` the width. `tokens_digest` is a SHA-256 over the token list and the bos
    and eos ids; `prefix_digests[i]` is one over tokens FIRST_COMPARED_TOKEN to
    `vocab_size − len(prefix_digests) + 1 + i`, so that vocabularies which differ a little in
    size can be compared without keeping them. `size_bytes` and `tensor_count` are totals over
    all shards. `has_mtp`: layers that predict further tokens are there. `recurrent`: some layer
    keeps a state that cannot drop a suffix. `embeds`: made for embeddings, not for writing text.
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
    split_count: int = 1
    has_mtp: bool = False
    recurrent: bool = False
    embeds: bool = False


@dataclass(frozen=True)
class _Part:
    """One file: a whole model, or a shard of one."""

    path: Path
    size: int
    metadata: Metadata
    tensors: tuple[str, ...]

    @property
    def split(self) -> tuple[int, int]:
        """Which shard it is, from 0 on, and of how many."""
        return self.metadata.count("split.no") or 0, self.metadata.count("split.count") or 1


def read_header(path: Path) -> GgufHeader:
    """Read the header of the GGUF file at `path`, and those of its further shards.

    Raises ModelError with what is wrong and where: no file, another format, big-endian,
    version 1, truncated, counts or lengths that cannot be, a duplicate key, a shard that is
    missing, truncated or another model's.
    """
    first = _read(path)
    architecture = first.metadata.text("general.architecture")
    index, count = first.split
    if architecture is None and index == 0:
        raise ModelError(f"{path}: general.architecture is missing", hint=DAMAGED)
    shards = [first, *_further_shards(first)]
    return _header(first.metadata, architecture or "", shards, count)


def _read(path: Path) -> _Part:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{path} is not a file", hint="name the .gguf file itself")
        with path.open("rb") as file:
            cursor = Cursor(file, status.st_size, path)
            tensor_count, key_count = read_preamble(cursor)
            metadata = read_metadata(cursor, key_count)
            alignment = metadata.count("general.alignment") or 32
            names = read_tensor_names(cursor, tensor_count, alignment)
            return _Part(path, status.st_size, metadata, tuple(names))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(
            f"{str(path)!r} cannot be read: {reason}", hint="check the path and who may read it"
        ) from error


def _header(
    metadata: Metadata, architecture: str, shards: Sequence[_Part], split_count: int
) -> GgufHeader:
    own = metadata.count
    tokens = metadata.tokens
    names = [name for shard in shards for name in shard.tensors]
    return GgufHeader(
        path=shards[0].path,
        architecture=architecture,
        size_bytes=sum(shard.size for shard in shards),
        tensor_count=len(names),
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
        split_count=split_count,
        # Some converters leave the tensors out and the key in.
        has_mtp=bool(own(f"{architecture}.nextn_predict_layers"))
        and any(".nextn." in name for name in names),
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


def _further_shards(first: _Part) -> list[_Part]:
    """The shards after `first`, read as well; raises ModelError unless they make up the model."""
    index, count = first.split
    if count == 1:
        return []
    path = first.path
    if count > _MOST_SHARDS:
        raise ModelError(f"{path} says that it is one of {count} shards", hint=DAMAGED)
    match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if match is None or int(match[2]) != index + 1 or int(match[3]) != count:
        raise ModelError(
            f"{path} is shard {index + 1} of {count}, but its name does not say so",
            hint=f"name it …-{index + 1:05d}-of-{count:05d}.gguf again, as the engine expects",
        )
    paths = [path.with_name(f"{match[1]}-{n:05d}-of-{count:05d}.gguf") for n in range(1, count + 1)]
    if index != 0:
        raise ModelError(
            f"{path} is shard {index + 1} of {count}", hint=f"name the first one: {paths[0]}"
        )
    if missing := [shard for shard in paths if not shard.is_file()]:
        raise ModelError(
            f"{len(missing)} of {count} shards are missing, first {missing[0]}",
            hint="download all shards into one folder",
        )
    shards = [_read(shard) for shard in paths[1:]]
    for number, shard in enumerate(shards, 1):
        if shard.split != (number, count):
            raise ModelError(
                f"{shard.path} is shard {shard.split[0] + 1} of {shard.split[1]} inside, "
                f"not {number + 1} of {count} as its name says",
                hint="download this shard again",
            )
    said = first.metadata.count("split.tensors.count")
    held = sum(len(part.tensors) for part in (first, *shards))
    if said is not None and said != held:
        raise ModelError(
            f"{path} belongs to a model of {said} tensors, and its {count} shards hold {held}",
            hint="some shard is of another model, or of another version of it: " + TRUNCATED,
        )
    return shards
