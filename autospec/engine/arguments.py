"""From what is wanted to the command line of the build that is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autospec.engine.capabilities import DRAFT_SIMPLE
from autospec.engine.flags import DRAFT_PLACEMENT, canonical, is_flag, options, spelled
from autospec.errors import EngineError, EngineNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autospec.engine.capabilities import Capabilities, Parameter
    from autospec.engine.find import Engine
    from autospec.engine.launch import Endpoint, Launch, Speculation

_NOT_MEASURED = frozenset(
    {
        "--ctx-size", "--parallel", "--kv-unified", "--predict", "--keep", "--offline",
        "--verbose", "--verbosity", "--perf", "--no-perf", "--hf-token",
    }
)  # fmt: skip
_OF_THE_TARGET = frozenset(
    {
        "--gpu-layers", "--cache-type-k", "--cache-type-v", "--override-tensor", "--cpu-moe",
        "--n-cpu-moe", "--n-cpu-ffn", "--hf-file", "--lora", "--lora-scaled", "--control-vector",
        "--control-vector-scaled", "--control-vector-layer-range",
    }
)  # fmt: skip


@dataclass(frozen=True)
class UnknownArgument:
    """Argument number `index` means nothing to this build; `advice` is a way out, if any."""

    index: int
    argument: str
    advice: str | None


def server_argv(
    engine: Engine, launch: Launch, speculation: Speculation, endpoint: Endpoint
) -> list[str]:
    """The command line of `llama-server`, program first.

    What autospec owns comes after the user's own arguments, so that it wins. Every parameter
    of speculation is named: defaults differ between builds. Plain decoding loads no draft.
    Raises EngineError where this build cannot speculate as asked.
    """
    known = engine.capabilities.flags
    argv = [str(engine.server), *_model(launch), *_workers(launch), *launch.extra]
    if endpoint.socket is not None:
        if endpoint.socket.suffix != ".sock":
            raise ValueError(f"the engine takes only sockets ending in .sock: {endpoint.socket}")
        argv += ["--host", str(endpoint.socket)]
    else:
        argv += ["--host", endpoint.host]
    argv += ["--port", str(endpoint.port)]
    if endpoint.api_key_file is not None:
        argv += ["--api-key-file", str(endpoint.api_key_file)]
    argv += [flag for flag in ("--metrics", "--slots") if flag in known]
    argv += ["--parallel", str(launch.slots), "--ctx-size", str(launch.context)]
    return argv + _speculation(engine.capabilities, launch, speculation)


def _model(launch: Launch) -> list[str]:
    if launch.model is not None:
        return ["--model", str(launch.model)]
    if launch.hf is not None:
        return ["--hf-repo", launch.hf]
    raise ValueError(f"{launch.name}: no model to serve")


def _workers(launch: Launch) -> list[str]:
    return ["--rpc", ",".join(launch.rpc)] if launch.rpc else []


def _speculation(able: Capabilities, launch: Launch, wanted: Speculation) -> list[str]:
    if not wanted.on:
        return ["--spec-type", "none"] if "--spec-type" in able.flags else []
    unable = [kind for kind in wanted.types if kind not in able.spec_types]
    if unable:
        raise EngineError(
            f"this build of the engine has no speculation type {', '.join(unable)}",
            hint=f"it has {', '.join(able.spec_types) or 'none'}",
        )
    argv = []
    if any(kind.startswith("draft") for kind in wanted.types):
        argv += _draft(able, launch)
    # Before the last generation, a draft model alone switches `draft-simple` on.
    named = [
        kind for kind in wanted.types if able.generation == "spec-type" or kind != DRAFT_SIMPLE
    ]
    if named:
        argv += ["--spec-type", ",".join(named)]
    settings: tuple[tuple[Parameter, str], ...] = (
        ("n_max", str(wanted.n_max)),
        ("n_min", str(wanted.n_min)),
        ("p_min", f"{wanted.p_min:g}"),
    )
    for parameter, value in settings:
        argv += [_name(able, parameter), value]
    for kind in wanted.types:
        # The n-gram types have lengths of their own, which the draft's do not bound.
        for suffix, length in (
            ("n-max", wanted.n_max),
            ("size-m", wanted.n_max),
            ("n-min", wanted.n_min),
        ):
            if kind.startswith("ngram") and f"--spec-{kind}-{suffix}" in able.flags:
                argv += [f"--spec-{kind}-{suffix}", str(length)]
    return argv


def _draft(able: Capabilities, launch: Launch) -> list[str]:
    if launch.draft is not None:
        return [_name(able, "draft"), str(launch.draft)]
    if launch.draft_hf is not None:
        return [_name(able, "draft_hf"), launch.draft_hf]
    return []


def _name(able: Capabilities, parameter: Parameter) -> str:
    name = able.name_of(parameter)
    if name is None:
        raise EngineError(
            f"this build of the engine has no flag for {parameter}",
            hint="use a newer build of llama.cpp",
        )
    return name


def bench_argv(engine: Engine, launch: Launch, *, which: Literal["target", "draft"]) -> list[str]:
    """`llama-batched-bench` with the model placed as the server places it, program first.

    Of the user's arguments those remain that the benchmark knows and that can change what a
    batch costs. For the draft, its own placement flags (`-ngld` and so on) take the place of
    the target's. Where it has none the server's rules hold: it shares the target's devices
    and threads, takes the defaults for layers on the GPU, cache types and tensor overrides,
    and its threads for batches follow the target's, not its own `-td`.
    """
    if engine.batched_bench is None:
        raise EngineNotFound(
            f"no llama-batched-bench beside {engine.server}",
            hint="build the target llama-batched-bench of the same llama.cpp",
        )
    argv = [str(engine.batched_bench), *_bench_model(launch, which), *_workers(launch)]
    placed = list(_placement(engine, launch, which))
    own = {name for name, _, is_own in placed if is_own}
    shared = {name: arguments for name, arguments, is_own in placed if not is_own}
    for name, arguments, is_own in placed:
        if is_own or name not in own:
            argv += arguments
    if "--threads" in own & shared.keys() and "--threads-batch" not in own | shared.keys():
        argv += ["--threads-batch", *shared["--threads"][1:]]
    return argv


def _bench_model(launch: Launch, which: Literal["target", "draft"]) -> list[str]:
    if which == "target":
        return _model(launch)
    if launch.draft is not None:
        return ["--model", str(launch.draft)]
    if launch.draft_hf is not None:
        return ["--hf-repo", launch.draft_hf]
    raise ValueError(f"{launch.name}: no draft to measure")


def _placement(
    engine: Engine, launch: Launch, which: Literal["target", "draft"]
) -> Iterator[tuple[str, list[str], bool]]:
    """Arguments for the benchmark as (first name, arguments, whether the draft's own)."""
    for option in options(launch.extra):
        if option.name in DRAFT_PLACEMENT:
            flag = DRAFT_PLACEMENT[option.name]
            if which == "draft" and flag in engine.bench_flags:
                yield flag, [flag, *option.values], True
            continue
        left_out = option.name in _NOT_MEASURED or option.name.startswith(("--spec-", "--log-"))
        if left_out or (which == "draft" and option.name in _OF_THE_TARGET):
            continue
        if spelled(option.flag) in engine.bench_flags:
            yield option.name, [spelled(option.flag), *option.values], False


def no_workers(engine: Engine, launch: Launch) -> str | None:
    """Why this engine cannot use the workers that `launch` names, None if it can."""
    if launch.rpc and "--rpc" not in engine.capabilities.flags:
        return "this build of llama-server knows no workers on other machines (rpc)"
    return None


def unknown_extra(engine: Engine, extra: Sequence[str]) -> list[UnknownArgument]:
    """What of the user's arguments this build does not take, and what to write instead.

    For a removed flag the advice is the engine's own, else the nearest flag that exists.
    """
    able = engine.capabilities
    unknown = []
    index = 0
    while index < len(extra):
        start, written = index, extra[index]
        flag = spelled(written)
        index += 1
        if not is_flag(written):
            unknown.append(UnknownArgument(start, written, "it belongs to no flag"))
        elif flag not in able.values:
            unknown.append(UnknownArgument(start, written, _advice(able, flag)))
            while index < len(extra) and not is_flag(extra[index]):
                index += 1
        elif "=" in written:
            advice = "write the flag and its value as two arguments"
            unknown.append(UnknownArgument(start, written, advice))
        else:
            index += able.values[flag]
            if index > len(extra):
                unknown.append(UnknownArgument(start, written, "it needs a value"))
    return unknown


def _advice(able: Capabilities, flag: str) -> str | None:
    if flag in able.removed:
        said = able.removed[flag]
        return f"it has been removed from this build: {said}" if said else "it has been removed"
    same = sorted(name for name in able.flags if canonical(name) == canonical(flag))
    nearest = same[0] if same else able.nearest(flag)
    return f"the nearest flag is {nearest}" if nearest else None
