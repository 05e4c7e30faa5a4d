"""Where the layers go, decided once: the server and the benchmark must place them alike.

With `--fit on` a server fits whatever the user left open (layers on the GPU, the split, the
context) to the memory that is free when it starts. The benchmark would fit again, without a
draft beside it, and measure another machine. So `llama-fit-params` is asked once, with room
left for the draft, and its answer is passed to both with `--fit off`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autospec.engine.arguments import bench_argv
from autospec.engine.find import Engine
from autospec.engine.flags import options
from autospec.engine.gguf import GgufHeader
from autospec.engine.launch import Launch
from autospec.engine.probe import probe
from autospec.errors import EngineError, EngineOutputError
from autospec.hardware.gpu import EngineDevice

PROGRAM = "llama-fit-params"

_MARGIN_MIB = 1024
_SECONDS = 120.0
_CHOSEN_BY_USER = {"--fit", "--gpu-layers", "--tensor-split", "-ts", "--override-tensor"}
_ANSWER = re.compile(r"^-c [0-9]{1,9}( |$)")
_FITTED = {"-c", "-ngl", "-ts", "-ot"}
_HALF_BYTES = 2


@dataclass(frozen=True)
class Placement:
    """`launch` with the placement spelled out, or as it was and then perhaps why."""

    launch: Launch
    note: str | None = None


def resolve(
    engine: Engine,
    launch: Launch,
    devices: Sequence[EngineDevice] | None,
    draft: GgufHeader | None,
) -> Placement:
    """Decide the placement of `launch` on `devices`. What the user placed stays as it is."""
    fits = "--fit" in engine.capabilities.flags
    placed = {option.name for option in options(launch.extra)} & _CHOSEN_BY_USER
    if not devices or not fits or placed or engine.batched_bench is None:
        return Placement(launch)
    program = engine.folder / PROGRAM
    if not program.exists():
        return Placement(
            launch,
            f"there is no {PROGRAM} beside llama-server: it may place layers otherwise when "
            f"serving than when measured; set -ngl in `extra` to be sure",
        )
    context = launch.context or (draft.context if draft and draft.context else 0)
    arguments = [
        *bench_argv(engine, launch, which="target")[1:],
        *("--ctx-size", str(launch.context)),
        *("--fit-target", str(_MARGIN_MIB + draft_mib(draft, context))),
    ]
    try:
        fitted = parse_fitted(probe(program, arguments, timeout=_SECONDS).stdout)
    except EngineError as error:
        return Placement(launch, f"placement is left to the engine: {error}")
    context, placement = int(fitted[1]), fitted[2:]
    return Placement(
        replace(launch, context=context, extra=(*launch.extra, *placement, "--fit", "off"))
    )


def parse_fitted(text: str) -> tuple[str, ...]:
    """The arguments that `llama-fit-params` prints, `-c N` first.

    EngineOutputError when there are none, or some that are not about placement.
    """
    line = next((line for line in text.splitlines() if _ANSWER.match(line)), None)
    if line is None:
        raise EngineOutputError(f"{PROGRAM} printed no placement", line=text[-300:])
    try:
        words = shlex.split(line)
    except ValueError:
        raise EngineOutputError(f"{PROGRAM} printed an unreadable placement", line=line) from None
    if len(words) % 2 or not set(words[::2]) <= _FITTED:
        raise EngineOutputError(f"{PROGRAM} printed an unknown placement", line=line)
    return tuple(words)


def draft_mib(draft: GgufHeader | None, context: int) -> int:
    """Memory in MiB that a draft needs at most: its file, and a cache of full width at f16."""
    if draft is None:
        return 0
    cache = 2 * _HALF_BYTES * (draft.layers or 0) * (draft.embedding or 0) * context
    return -(-(draft.size_bytes + cache) // 2**20)
