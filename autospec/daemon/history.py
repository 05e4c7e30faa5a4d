"""The last hour of each model, sampled: what a page that is opened late still shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

EVERY = 2.0
"""Seconds between two samples."""

KEPT = 1800
"""Samples of a model that are kept: an hour."""


@dataclass(frozen=True)
class Sample:
    """`at` is in seconds since the epoch, rates in tokens/s of one request; None: no traffic.

    `plain` is what plain decoding would give, as predicted.
    """

    at: float
    state: str
    busy: int
    depth: float | None
    rate: float | None
    plain: float | None
    acceptance: float | None


@dataclass
class History:
    """Feed it every `EVERY` seconds with the models of the status document."""

    kept: dict[str, deque[Sample]] = field(default_factory=dict)

    def sample(self, models: list[dict[str, Any]], now: float) -> None:
        names = {model["name"] for model in models}
        for name in [name for name in self.kept if name not in names]:
            del self.kept[name]
        for model in models:
            row = self.kept.setdefault(model["name"], deque(maxlen=KEPT))
            row.append(_of(model, now))

    def to_json(self) -> Mapping[str, list[dict[str, Any]]]:
        """Samples by model, oldest first."""
        return {name: [asdict(sample) for sample in row] for name, row in self.kept.items()}


def _of(model: Mapping[str, Any], now: float) -> Sample:
    live, setting = model["live"], model["setting"]
    return Sample(
        at=now,
        state=model["state"],
        busy=live["busy"],
        depth=live["depth"],
        rate=live["rate"],
        plain=_a_request(setting),
        acceptance=live["acceptance"],
    )


def _a_request(setting: Mapping[str, Any]) -> float | None:
    """The prediction is of all busy slots together."""
    plain: float | None = setting["predicted_plain_rate"]
    return None if plain is None else plain / setting["basis"]["busy"]
