"""What to do without when memory runs out: one step after the other, each tried once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from autospec.daemon.setting import Setting
from autospec.engine.capabilities import DRAFT_SIMPLE, Capabilities
from autospec.engine.flags import options
from autospec.engine.launch import Launch

LEAST_CONTEXT = 2048
"""Tokens a slot under which a context is not cut: chats would end in the middle."""

_DRAFT_LAYERS = "--spec-draft-ngl"


class Step(StrEnum):
    """In the order they are taken. The first two cost speed or room, the last a draft's gain."""

    DRAFT_OFF_GPU = "the draft runs on the CPU"
    HALF_CONTEXT = "half the context"
    NO_SPECULATION = "no speculation"


def next_step(
    launch: Launch,
    setting: Setting,
    able: Capabilities,
    *,
    context: int,
    on_gpu: bool,
    taken: Sequence[Step],
) -> Step | None:
    """The next thing to do without; None when there is nothing left.

    `context` is the server's in tokens (the model's own where the launch says 0), `on_gpu`
    whether the engine has a GPU.
    """
    drafts = setting.speculation.on
    loads_draft = drafts and launch.has_draft and DRAFT_SIMPLE in setting.speculation.types
    left = {
        Step.DRAFT_OFF_GPU: loads_draft and on_gpu and able.name_of("draft_layers") is not None,
        Step.HALF_CONTEXT: context // 2 >= LEAST_CONTEXT * launch.slots,
        Step.NO_SPECULATION: drafts,
    }
    return next((step for step, possible in left.items() if possible and step not in taken), None)


def lowered(launch: Launch, able: Capabilities, *, context: int, taken: Sequence[Step]) -> Launch:
    """`launch` after the steps taken so far; `context` as for `next_step`."""
    if Step.HALF_CONTEXT in taken:
        launch = replace(launch, context=context // 2)
    layers = able.name_of("draft_layers")
    if Step.DRAFT_OFF_GPU in taken and layers is not None:
        # The user's own placement of the draft would contradict it.
        kept = [
            word
            for option in options(launch.extra)
            if option.name != _DRAFT_LAYERS
            for word in (option.flag, *option.values)
        ]
        launch = replace(launch, extra=(*kept, layers, "0"))
    return launch
