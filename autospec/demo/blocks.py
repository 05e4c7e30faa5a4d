"""New models from one GGUF file by choosing its transformer blocks.

A block adds to the residual stream through two matrices only, the attention's output and the
feed-forward's down projection. With both zero it adds nothing: the model computes the same
function and pays for one more block. A block left out gives a worse model of the same family,
that is, a draft of lower quality.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autospec.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gguf import GGUFReader, GGUFWriter, ReaderTensor

RESIDUAL_WRITERS = ("attn_output.weight", "ffn_down.weight")
F16_FILE_TYPE = 1
"""`general.file_type` of a file that is mostly F16, as the GGUF specification numbers it."""


@dataclass(frozen=True)
class Recipe:
    """Which blocks of the source the new model has.

    `keep` are block numbers of the source, in order. `idle` further blocks copy the first
    kept one with its output zeroed. `half` dequantises every matrix to F16; otherwise data is
    copied as it is.
    """

    keep: tuple[int, ...]
    idle: int = 0
    half: bool = False

    @property
    def blocks(self) -> int:
        return len(self.keep) + self.idle


@dataclass(frozen=True)
class _Part:
    """One tensor of the new model: `source` under the new `name`, all zeros if `zero`."""

    name: str
    source: ReaderTensor
    zero: bool = False


def check_gguf() -> None:
    """Raise ModelError where `open_source` and `derive` lack the package that they need."""
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(
            "making the demo models needs the Python package gguf",
            hint="install it: pip install 'gguf>=0.17'",
        )


def open_source(path: Path) -> GGUFReader:
    """Open `path` for `derive`; its tensors are mapped, not read."""
    from gguf import GGUFReader  # noqa: PLC0415

    return GGUFReader(path)


def derive(
    source: GGUFReader, destination: Path, recipe: Recipe, advance: Callable[[int], None]
) -> None:
    """Write the model of `recipe` to `destination`; memory stays bounded however deep it is.

    One tensor at a time is held, and those of the block that idle blocks repeat.

    `advance` is told the bytes of each tensor after it is written.
    """
    from gguf import GGUFWriter  # noqa: PLC0415

    architecture = str(source.fields["general.architecture"].contents())
    writer = GGUFWriter(destination, architecture)
    try:
        _copy_metadata(source, writer, architecture, recipe)
        parts = list(_parts(source, recipe))
        for part in parts:
            _announce(writer, part, recipe)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        repeated: dict[tuple[str, bool], Any] = {}
        for part in parts:
            key = (part.source.name, part.zero)
            data = repeated.get(key)
            if data is None:
                data = _data(part, recipe)
                if part.source.name.startswith(f"blk.{recipe.keep[0]}."):
                    repeated[key] = data
            writer.write_tensor_data(data)
            advance(data.nbytes)
    finally:
        writer.close()


def _copy_metadata(
    source: GGUFReader, writer: GGUFWriter, architecture: str, recipe: Recipe
) -> None:
    from gguf import GGUFValueType  # noqa: PLC0415

    changed: dict[str, Any] = {f"{architecture}.block_count": recipe.blocks}
    if recipe.half:
        changed["general.file_type"] = F16_FILE_TYPE
    for name, field in source.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(
            name,
            changed.get(name, field.contents()),
            kind,
            sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None,
        )


def _parts(source: GGUFReader, recipe: Recipe) -> Iterator[_Part]:
    blocks: dict[int, list[tuple[str, ReaderTensor]]] = {}
    for tensor in source.tensors:
        if tensor.name.startswith("blk."):
            _, number, rest = tensor.name.split(".", 2)
            blocks.setdefault(int(number), []).append((rest, tensor))
        else:
            yield _Part(tensor.name, tensor)
    for new, old in enumerate(recipe.keep):
        for rest, tensor in blocks[old]:
            yield _Part(f"blk.{new}.{rest}", tensor)
    for new in range(len(recipe.keep), recipe.blocks):
        for rest, tensor in blocks[recipe.keep[0]]:
            yield _Part(f"blk.{new}.{rest}", tensor, zero=rest in RESIDUAL_WRITERS)


def _is_converted(tensor: ReaderTensor, recipe: Recipe) -> bool:
    from gguf import GGMLQuantizationType  # noqa: PLC0415

    return recipe.half and tensor.tensor_type != GGMLQuantizationType.F32


def _announce(writer: GGUFWriter, part: _Part, recipe: Recipe) -> None:
    import numpy as np  # noqa: PLC0415

    tensor = part.source
    if _is_converted(tensor, recipe):
        shape = tuple(int(n) for n in reversed(tensor.shape))
        size = 2 * int(np.prod(shape))
        writer.add_tensor_info(part.name, shape, np.dtype(np.float16), size)
    else:
        writer.add_tensor_info(
            part.name,
            tensor.data.shape,
            tensor.data.dtype,
            tensor.data.nbytes,
            raw_dtype=tensor.tensor_type,
        )


def _data(part: _Part, recipe: Recipe) -> Any:  # noqa: ANN401 - a NumPy array of either kind
    import numpy as np  # noqa: PLC0415
    from gguf import dequantize  # noqa: PLC0415

    tensor = part.source
    if not _is_converted(tensor, recipe):
        return tensor.data
    if part.zero:
        return np.zeros(tuple(reversed(tensor.shape)), dtype=np.float16)
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float16)
