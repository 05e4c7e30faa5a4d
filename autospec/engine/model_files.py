"""The model files of a launch, looked at before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autospec.engine.compatibility import Problem, check_model, check_pair
from autospec.engine.gguf import GgufHeader, read_header

if TYPE_CHECKING:
    from autospec.engine.launch import Launch


@dataclass(frozen=True)
class ModelFiles:
    """Headers are None for files that the engine fetches itself; those are not judged."""

    target: GgufHeader | None
    draft: GgufHeader | None
    problems: tuple[Problem, ...] = ()


def look_at(launch: Launch) -> ModelFiles:
    """Read the headers of target and draft, and judge the pair. ModelError for a bad file."""
    target = read_header(launch.model) if launch.model is not None else None
    draft = read_header(launch.draft) if launch.draft is not None else None
    a_slot = launch.context // launch.slots
    if target is not None and draft is not None:
        problems = check_pair(target, draft, context=a_slot)
    else:
        known = (header for header in (target, draft) if header is not None)
        problems = [problem for header in known for problem in check_model(header, context=a_slot)]
    return ModelFiles(target, draft, tuple(problems))
