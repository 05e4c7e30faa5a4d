"""The daemon: puts everything together, runs until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autospec.calibration.obtain import obtain, stored
from autospec.calibration.prepare import Prepared, prepare
from autospec.calibration.result import Calibration
from autospec.calibration.run import Progress, Settings
from autospec.config.schema import Config
from autospec.daemon import memory
from autospec.daemon.child_log import ChildLog
from autospec.daemon.choose import Model
from autospec.daemon.control import ControlServer
from autospec.daemon.events import Events
from autospec.daemon.lifecycle import Phase
from autospec.daemon.report import model_report, report
from autospec.daemon.supervisor import Charge, Supervisor
from autospec.daemon.tuner import Tuner
from autospec.engine.find import Engine, find_engine
from autospec.errors import AutospecError, CalibrationError, ServeError
from autospec.hardware.snapshot import Hardware, snapshot


@dataclass(frozen=True)
class Options:
    """What the command line adds to the configuration."""

    engine: Path | None = None
    calibrate: bool = True
    on_progress: Callable[[Progress], None] = lambda _progress: None


@dataclass
class Daemon:
    """Serves every enabled model of `config`. `origin` says where the configuration is from."""

    config: Config
    origin: str
    options: Options = field(default_factory=Options)
    events: Events = field(default_factory=Events)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._engine: Engine | None = None
        self._hardware: Hardware | None = None
        self._owned: list[tuple[Supervisor, Tuner]] = []
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal says stop.

        ServeError when no model can be kept up; AutospecError for what is wrong before that.
        """
        control = await ControlServer.open(self._answer)
        self._take_signals()
        try:
            await self._until_stopped(self._set_up())
            if self._stopping.is_set():
                return
            async with asyncio.TaskGroup() as children:
                for supervisor, _ in self._owned:
                    children.create_task(supervisor.run())
            self._complain()
        finally:
            await control.close()

    def stop(self) -> None:
        """Drain and end. Asked a second time: end at once."""
        hurry = self._stopping.is_set()
        self._stopping.set()
        self.events.add("stopping at once" if hurry else "stopping: draining first")
        for supervisor, _ in self._owned:
            supervisor.stop(hurry=hurry)

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def _until_stopped(self, work: Any) -> None:  # noqa: ANN401 - any coroutine
        """Run `work`; a stop cancels it."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    async def _set_up(self) -> None:
        engine = find_engine(self.options.engine or self.config.engine.path)
        self._engine, self._hardware = engine, snapshot()
        self.events.add(f"engine {engine.version} at {engine.folder} ({engine.source})")
        extra = self.config.engine.environment
        prepared = {
            name: prepare(engine, model.launch(name), extra)
            for name, model in self.config.enabled_models().items()
        }
        for name, one in prepared.items():
            for note in one.notes:
                self.events.add(note, model=name, level="warning")
        calibrations = {name: await self._calibration(one) for name, one in prepared.items()}
        for name, one in prepared.items():
            self._owned.append(self._own(name, one, calibrations[name]))

    async def _calibration(self, prepared: Prepared) -> Calibration | None:
        """The costs of this model, measured now if they are not known; None without a draft."""
        assert self._hardware is not None
        launch = prepared.launch
        if not launch.has_draft:
            return None
        settings = settings_of(self.config)
        key = self._hardware.key()
        known = stored(prepared, settings, key)
        if known is not None or not self.options.calibrate:
            return known
        self.events.add(
            f"first start with this model, engine and machine: measuring for up to "
            f"{settings.budget:.0f} s",
            model=launch.name,
        )
        try:
            return await obtain(prepared, settings, key, self.options.on_progress)
        except CalibrationError as error:
            self.events.add(f"not calibrated: {error}", model=launch.name, level="warning")
            return None

    def _own(
        self, name: str, prepared: Prepared, calibration: Calibration | None
    ) -> tuple[Supervisor, Tuner]:
        config = self.config
        learned = memory.load(calibration.key) if calibration else None
        model = Model(config.models[name], prepared.context, calibration, learned)
        tuner = Tuner(model, config.retune)
        endpoint = config.address(name).endpoint(config.server.api_key_file)
        load_seconds = config.engine.start_timeout or prepared.load_seconds
        charge = Charge(prepared.engine, prepared.launch, endpoint, prepared.env, load_seconds)
        supervisor = Supervisor(
            charge, tuner.first(), self.events, tuner.reconsider, ChildLog.open(name)
        )
        return supervisor, tuner

    def _complain(self) -> None:
        failed = [one for one, _ in self._owned if one.life.phase is Phase.FAILED]
        if failed and len(failed) == len(self._owned):
            reasons = "; ".join(f"{one.name}: {one.life.reason}" for one in failed)
            raise ServeError(
                reasons, hint=f"the last lines of llama-server are in {ChildLog.folder()}"
            )

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("op") != "status":
            raise AutospecError(f"the daemon knows no {request.get('op')!r}")
        if self._engine is None or self._hardware is None:
            raise AutospecError("the daemon is still starting")
        return report(
            [model_report(supervisor, tuner) for supervisor, tuner in self._owned],
            engine=self._engine,
            hardware=self._hardware.to_dict(),
            events=self.events,
            config=self.origin,
            pid=os.getpid(),
            began=self._began,
        )


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
