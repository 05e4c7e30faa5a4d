"""A calibration from the store, or a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from autospec.calibration.prepare import Prepared
from autospec.calibration.prompts import prompts
from autospec.calibration.result import Calibration
from autospec.calibration.run import Progress, Settings, calibrate, key_of
from autospec.calibration.store import load, save
from autospec.config.schema import Config
from autospec.errors import CalibrationError
from autospec.state.store import Store


def stored(
    store: Store, prepared: Prepared, settings: Settings, hardware: str
) -> Calibration | None:
    """The calibration of this very hardware, engine, model, flags and grid, if there is one."""
    if prepared.engine.batched_bench is None:
        return None
    return load(store, _key(prepared, settings, hardware))


async def obtain(
    store: Store,
    prepared: Prepared,
    settings: Settings,
    hardware: str,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> Calibration:
    """Measure anew and keep the result. CalibrationError when it cannot be measured."""
    if prepared.engine.batched_bench is None:
        raise CalibrationError(
            "there is no llama-batched-bench of the same build beside llama-server",
            hint=f"build it from the same source and put it into {prepared.engine.folder}",
        )
    calibration = await calibrate(
        prepared.engine,
        prepared.launch,
        settings,
        key=_key(prepared, settings, hardware),
        context=prepared.context,
        prompts=[prompt.text for prompt in prompts("learning")],
        env=prepared.env,
        on_progress=on_progress,
    )
    await asyncio.to_thread(save, store, calibration)
    return calibration


def settings_of(config: Config, budget: float | None = None) -> Settings:
    """Calibration settings as the configuration has them; `budget` in seconds overrides."""
    section = config.calibration
    return Settings(
        budget=budget or section.budget,
        max_draft=section.max_draft,
        depths=section.depths,
        passes=section.repeats,
        rehearse=section.rehearse,
    )


def _key(prepared: Prepared, settings: Settings, hardware: str) -> str:
    return key_of(prepared.engine, prepared.launch, settings, hardware, prepared.context)
