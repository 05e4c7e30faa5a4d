"""Everything that has to be right about a model and an engine before anything is launched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from autospec.engine.arguments import no_workers, unknown_extra
from autospec.engine.devices import list_devices
from autospec.engine.environment import child_environment
from autospec.engine.find import Engine
from autospec.engine.gguf import GgufHeader
from autospec.engine.launch import Launch
from autospec.engine.model_files import look_at
from autospec.engine.placement import resolve
from autospec.errors import ModelError, UsageError

_LOAD_FLOOR = 60.0
_LOAD_BYTES_A_SECOND = 50e6
_UNKNOWN_SIZE = 30e9
_FALLBACK_CONTEXT = 4096


@dataclass(frozen=True)
class Prepared:
    """A model that may be launched.

    `context` is the server's context in tokens with the model's own put in for 0. `headers`
    are None for files that the engine fetches itself. `notes` are sentences for the user.
    `on_gpu`: the engine has a GPU, or does not say that it has none.
    """

    engine: Engine
    launch: Launch
    env: Mapping[str, str]
    context: int
    target: GgufHeader | None
    draft: GgufHeader | None
    notes: tuple[str, ...]
    on_gpu: bool

    @property
    def load_seconds(self) -> float:
        """How long loading may take: slow disks read 50 MB/s, and then there is some slack."""
        sizes = [header.size_bytes for header in (self.target, self.draft) if header]
        size = sum(sizes) if self.target else _UNKNOWN_SIZE
        return _LOAD_FLOOR + size / _LOAD_BYTES_A_SECOND


def prepare(engine: Engine, launch: Launch, extra_env: Mapping[str, str]) -> Prepared:
    """Check the model files, the pair and the extra arguments against this engine.

    ModelError for a file or a pair that cannot work, UsageError for arguments that this build
    does not know, each with the engine's own advice where it has some.
    """
    strange = unknown_extra(engine, launch.extra)
    if strange:
        first = strange[0]
        raise UsageError(
            f"{launch.name}: this build of llama-server does not know {first.argument}",
            hint=first.advice or "remove it from `extra`",
        )
    if (unable := no_workers(engine, launch)) is not None:
        raise UsageError(
            f"{launch.name}: {unable}",
            hint="build llama.cpp with -DGGML_RPC=ON, here and for the workers",
        )
    files = look_at(launch)
    target, draft = files.target, files.draft
    for problem in files.problems:
        if problem.severity == "error":
            raise ModelError(f"{launch.name}: {problem.sentence}", hint=problem.hint)
    env, removed = child_environment(os.environ, extra_env)
    devices = list_devices(engine, launch.rpc)
    placement = resolve(engine, launch, devices, draft)
    notes = [problem.sentence for problem in files.problems]
    if placement.note:
        notes.append(placement.note)
    if removed:
        notes.append(f"not passed on to llama-server: {', '.join(removed)}")
    own = target.context if target and target.context else _FALLBACK_CONTEXT
    launch = placement.launch
    on_gpu = devices is None or bool(devices)
    context = launch.context or own
    return Prepared(engine, launch, env, context, target, draft, tuple(notes), on_gpu)
