"""Calibration on its own, without serving: what `autospec calibrate` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autospec.calibration.obtain import obtain, settings_of, stored
from autospec.calibration.prepare import prepare
from autospec.calibration.result import Calibration
from autospec.calibration.run import Progress
from autospec.config.schema import Config
from autospec.daemon.choose import Model, choose
from autospec.daemon.setting import Setting
from autospec.engine.find import find_engine
from autospec.errors import UsageError
from autospec.hardware.snapshot import snapshot
from autospec.state.store import Store


@dataclass(frozen=True)
class Calibrated:
    """A calibration, whether it was known before, and the setting that it leads to."""

    calibration: Calibration
    cached: bool
    setting: Setting


async def calibrate_models(
    config: Config,
    only: str | None,
    *,
    engine: Path | None = None,
    budget: float | None = None,
    force: bool = False,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> list[Calibrated]:
    """Calibrate the model `only`, or every enabled one, one after the other.

    UsageError for a name that the configuration lacks.
    """
    models = config.enabled_models()
    if only is not None:
        if only not in config.models:
            names = ", ".join(config.models) or "none"
            raise UsageError(f"no model is called {only!r}", hint=f"the configuration has: {names}")
        models = {only: config.models[only]}
    found = find_engine(engine or config.engine.path)
    hardware = snapshot().key()
    settings = settings_of(config, budget)
    done = []
    with Store.open() as store:
        for name, model in models.items():
            prepared = prepare(found, model.launch(name), config.engine.environment)
            known = None if force else stored(store, prepared, settings, hardware)
            calibration = known or await obtain(store, prepared, settings, hardware, on_progress)
            setting = choose(Model(model, prepared.context, calibration))
            done.append(Calibrated(calibration, known is not None, setting))
    return done
