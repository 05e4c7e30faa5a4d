"""What each model shall be, as the configuration has it, and what a new configuration changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autospec.calibration.prepare import Prepared, prepare
from autospec.config.schema import Config, EngineSection, ModelConfig
from autospec.engine.find import Engine


@dataclass(frozen=True)
class Order:
    """One model that shall be served: the user's wishes, and what they mean for this engine."""

    config: ModelConfig
    engine: EngineSection
    prepared: Prepared

    @property
    def load_seconds(self) -> float:
        return self.engine.start_timeout or self.prepared.load_seconds


class Change(StrEnum):
    """What a new order means for a model. `TUNING`: the child may stay, its setting may not."""

    NONE = "unchanged"
    TUNING = "tuning"
    CHILD = "restarted"
    NEW = "new"
    GONE = "gone"


def orders(config: Config, engine: Engine) -> dict[str, Order]:
    """Check every enabled model against `engine`; reads files, which can take seconds.

    ModelError or UsageError for the first that cannot work.
    """
    extra = config.engine.environment
    return {
        name: Order(model, config.engine, prepare(engine, model.launch(name), extra))
        for name, model in config.enabled_models().items()
    }


def changes(before: Mapping[str, Order], after: Mapping[str, Order]) -> dict[str, Change]:
    """What each model that is in either becomes, in the order of the new file, then the gone."""
    found = {
        name: _change(before[name], order) if name in before else Change.NEW
        for name, order in after.items()
    }
    return found | {name: Change.GONE for name in before if name not in after}


def _change(before: Order, after: Order) -> Change:
    if _child(before) != _child(after):
        return Change.CHILD
    return Change.NONE if before == after else Change.TUNING


def _child(order: Order) -> tuple[object, ...]:
    """All that a running child was started with, its speculation apart."""
    prepared = order.prepared
    return (
        prepared.engine.identity,
        prepared.launch,
        dict(prepared.env),
        order.engine.live_policy,
    )
