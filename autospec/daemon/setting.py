"""The setting of one model: what is in force, where each value comes from, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autospec.engine.launch import PLAIN, Speculation
from autospec.tuning.plan import Plan

Source = Literal["auto", "pinned", "off"]


@dataclass(frozen=True)
class Basis:
    """What a choice was made for: context depth in tokens, busy slots, and the rounds of real
    traffic (not of the rehearsal) that were known then."""

    depth: float = 0.0
    busy: int = 1
    rounds: int = 0


@dataclass(frozen=True)
class Unpinned:
    """What would be chosen if the user had pinned nothing, and its predicted tokens/s. `loss` is
    the share of it that the pins give up by prediction, None where theirs cannot be predicted;
    negative where the pins are predicted to be faster."""

    speculation: Speculation
    live: bool
    rate: float
    loss: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "type": ",".join(self.speculation.types) or "off",
            "n_max": self.speculation.n_max,
            "n_min": self.speculation.n_min,
            "p_min": self.speculation.p_min,
            "live": self.live,
            "predicted_rate": self.rate,
            "loss": self.loss,
        }


@dataclass(frozen=True)
class Setting:
    """`sources` tells for `type`, `n_max`, `n_min` and `p_min` whether autospec or the user
    chose. `plan` holds the predictions; None where nothing was measured to predict from.
    `live`: thresholds decide inside the engine, and `speculation` only gives them room.
    `environment` is added to the child's. `unpinned` is None where nothing is pinned, or nothing
    was measured to predict from."""

    speculation: Speculation
    reason: str
    sources: Mapping[str, Source]
    plan: Plan | None = None
    basis: Basis = field(default_factory=Basis)
    live: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    unpinned: Unpinned | None = None

    def same_launch(self, other: Setting) -> bool:
        """Whether a child under this setting needs no restart for `other`."""
        mine, theirs = ((one.speculation, one.live, dict(one.environment)) for one in (self, other))
        return mine == theirs


def plain(reason: str, source: Source = "auto", plan: Plan | None = None) -> Setting:
    """Plain decoding, because of `reason`."""
    return Setting(PLAIN, reason, {"type": "off" if source == "auto" else source}, plan)
