"""`autospec explain`: from the daemon, or from what is stored where none runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autospec.calibration.obtain import settings_of, stored
from autospec.calibration.prepare import prepare
from autospec.config.load import find_config, load
from autospec.daemon import steering
from autospec.daemon.choose import Model
from autospec.daemon.control import ask
from autospec.daemon.explaining import wanted
from autospec.daemon.memory import Memory
from autospec.daemon.tuner import Tuner
from autospec.engine.find import find_engine
from autospec.errors import DaemonNotRunning
from autospec.hardware.snapshot import snapshot
from autospec.state.recorder import Recorder
from autospec.state.store import Store


def explanation(
    only: str | None, config: Path | None = None, engine: Path | None = None
) -> dict[str, Any]:
    """What the daemon says; without one, what follows from calibrations and the state file."""
    try:
        return ask({"op": "explain", "model": only})
    except DaemonNotRunning:
        return {"running": False, "models": _from_the_store(only, config, engine)}


def _from_the_store(
    only: str | None, config_file: Path | None, engine_path: Path | None
) -> list[dict[str, Any]]:
    config = load(find_config(config_file))
    engine = find_engine(engine_path or config.engine.path)
    hardware, settings = snapshot().key(), settings_of(config)
    models = config.enabled_models()
    recorder = Recorder(Store.reading())
    try:
        memory, found = Memory(recorder), []
        for name in wanted(only, list(models)):
            prepared = prepare(engine, models[name].launch(name), config.engine.environment)
            calibration = stored(recorder.store, prepared, settings, hardware)
            asked = config.engine.live_policy == "auto" and calibration is not None
            refusal = steering.why_not(engine, prepared.launch) if asked else None
            model = Model(
                models[name],
                prepared.context,
                calibration,
                engine.capabilities,
                live=asked and refusal is None,
            )
            tuner = Tuner(model, config.retune, memory, name=name)
            tuner.why_not_live = refusal
            found.append(tuner.explained())
        return found
    finally:
        recorder.close()
