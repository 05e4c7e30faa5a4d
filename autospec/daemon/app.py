"""The daemon: puts everything together, runs until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autospec.calibration.obtain import obtain, stored
from autospec.calibration.prepare import Prepared, prepare
from autospec.calibration.result import Calibration
from autospec.calibration.run import Progress, Settings
from autospec.config.schema import Config
from autospec.daemon import explaining, orphans, steering
from autospec.daemon.child_log import ChildLog
from autospec.daemon.choose import Model
from autospec.daemon.control import ControlServer
from autospec.daemon.events import Events, Level
from autospec.daemon.lifecycle import Phase
from autospec.daemon.memory import Memory
from autospec.daemon.notify import Notifier
from autospec.daemon.pulse import Pulse, heartbeat
from autospec.daemon.report import model_report, report
from autospec.daemon.retuning.appliers import Applier
from autospec.daemon.supervisor import Supervisor
from autospec.daemon.terms import Charge
from autospec.daemon.tuner import Tuner
from autospec.engine.find import Engine, find_engine
from autospec.engine.waiting import unless
from autospec.errors import AutospecError, CalibrationError, EngineError, ServeError
from autospec.hardware.snapshot import Hardware, snapshot
from autospec.state.recorder import Recorder
from autospec.state.store import Store

_LOOK_SECONDS = 300.0
"""Within which engine and model files have been looked at, also on a slow network drive."""


@dataclass(frozen=True)
class Options:
    """What the command line adds to the configuration."""

    engine: Path | None = None
    calibrate: bool = True
    on_progress: Callable[[Progress], None] = lambda _progress: None


@dataclass(frozen=True)
class Measuring:
    """A calibration under way: `share` of its budget is spent, `left` seconds remain at most."""

    model: str
    what: str
    share: float
    left: float | None


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
        self._applier: Applier | None = None
        self._hardware: Hardware | None = None
        self._measuring: Measuring | None = None
        self._owned: list[tuple[Supervisor, Tuner]] = []
        self._store = Store.open(say=functools.partial(self.events.add, level="warning"))
        self._logs = contextlib.ExitStack()
        self._stopping = asyncio.Event()
        self._notifier = Notifier.take(os.environ)
        self._pulse = Pulse("the start")
        self._roster: orphans.Roster | None = None

    async def run(self) -> None:
        """Serve until a signal says stop.

        ServeError when no model can be kept up; AutospecError for what is wrong before that.
        """
        control = await ControlServer.open(self._answer)
        self._take_signals()
        recorder = Recorder(self._store)
        self._memory = Memory(recorder)
        await asyncio.to_thread(self.events.keep_in, recorder)
        heart = asyncio.create_task(
            heartbeat(self._notifier, self._pulses, self._sentence, self.events)
        )
        try:
            self._roster, found = await asyncio.to_thread(orphans.take_over)
            for sentence in found:
                self.events.add(sentence, level="warning")
            await unless(self._stopping, self._set_up())
            self._pulse.rest()
            if self._stopping.is_set():
                return
            async with asyncio.TaskGroup() as children:
                for supervisor, _ in self._owned:
                    children.create_task(supervisor.run())
            self._complain()
        finally:
            heart.cancel()
            self._logs.close()
            if self._roster is not None:
                self._roster.close()
            await control.close()
            await asyncio.to_thread(recorder.close)
            self._notifier.close()

    def stop(self) -> None:
        """Drain and end. Asked a second time: end at once."""
        hurry = self._stopping.is_set()
        self._stopping.set()
        self._notifier.stopping()
        self.events.add("stopping at once" if hurry else "stopping: draining first")
        for supervisor, _ in self._owned:
            supervisor.stop(hurry=hurry)

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    def _pulses(self) -> list[Pulse]:
        return [self._pulse, *(supervisor.pulse for supervisor, _ in self._owned)]

    def _sentence(self) -> str:
        """What goes on, for `systemctl status`."""
        if self._measuring is not None:
            return f"measuring {self._measuring.model}: {self._measuring.what}"
        return ", ".join(f"{one.name} {one.life.phase}" for one, _ in self._owned) or "starting"

    async def _set_up(self) -> None:
        self._pulse.promise(_LOOK_SECONDS, "looking at the engine and the model files")
        self._notifier.extend(_LOOK_SECONDS)
        engine, self._hardware, prepared = await asyncio.to_thread(self._look_around)
        # What would end the start has been seen; all that is left can only make requests wait.
        self._notifier.ready()
        self._engine = engine
        live = self.config.engine.live_policy == "auto"
        self._applier = steering.applier_of(engine, live=live)
        self.events.add(f"engine {engine.version} at {engine.folder} ({engine.source})")
        for name, one in prepared.items():
            for note in one.notes:
                self.events.add(note, model=name, level="warning")
        calibrations = {name: await self._calibration(one) for name, one in prepared.items()}
        self._measuring = None
        for name, one in prepared.items():
            self._owned.append(self._own(name, one, calibrations[name]))

    def _look_around(self) -> tuple[Engine, Hardware, dict[str, Prepared]]:
        """Engine, machine and model files: reads that can take seconds, in a thread."""
        engine = find_engine(self.options.engine or self.config.engine.path)
        extra = self.config.engine.environment
        models = self.config.enabled_models()
        prepared = {
            name: prepare(engine, model.launch(name), extra) for name, model in models.items()
        }
        return engine, snapshot(), prepared

    async def _calibration(self, prepared: Prepared) -> Calibration | None:
        """The costs of this model, measured now if they are not known; None without a draft."""
        assert self._hardware is not None
        launch = prepared.launch
        if not launch.has_draft:
            return None
        settings = settings_of(self.config)
        key = self._hardware.key()
        known = stored(self._store, prepared, settings, key)
        if known is not None or not self.options.calibrate:
            return known
        self.events.add(
            f"first start with this model, engine and machine: measuring for up to "
            f"{settings.budget:.0f} s",
            model=launch.name,
        )

        patience = 4 * settings.budget + 4 * prepared.load_seconds
        self._pulse.promise(patience, f"measuring {launch.name}")

        def show(step: Progress) -> None:
            self._measure(launch.name, step)

        try:
            return await obtain(self._store, prepared, settings, key, show)
        except (CalibrationError, EngineError, OSError) as error:
            self.events.add(f"not calibrated: {error}", model=launch.name, level="warning")
            return None

    def _measure(self, name: str, step: Progress) -> None:
        """Show what is being measured; in the log only where another series begins."""
        series = step.what.partition(":")[0]
        before = self._measuring
        self._measuring = Measuring(name, step.what, step.share, step.left)
        if before is None or (before.model, before.what.partition(":")[0]) != (name, series):
            left = "" if step.left is None else f"; {step.left:.0f} s left at most"
            self.events.add(f"measuring {series}{left}", model=name)
        self.options.on_progress(step)

    def _own(
        self, name: str, prepared: Prepared, calibration: Calibration | None
    ) -> tuple[Supervisor, Tuner]:
        config = self.config
        live = calibration is not None and self._may_steer(name, prepared)
        able = prepared.engine.capabilities
        model = Model(config.models[name], prepared.context, calibration, able, live=live)

        def say(text: str, level: Level) -> None:
            self.events.add(text, model=name, level=level)

        tuner = Tuner(model, config.retune, self._memory, name=name, say=say)
        endpoint = config.own_addresses()[name].endpoint(config.server.api_key_file)
        load_seconds = config.engine.start_timeout or prepared.load_seconds
        charge = Charge(
            prepared.engine,
            prepared.launch,
            endpoint,
            prepared.env,
            load_seconds,
            context=prepared.context,
            draft_bytes=prepared.draft.size_bytes if prepared.draft else 0,
            on_gpu=prepared.on_gpu,
            drain=config.server.drain,
            idle_unload=config.models[name].idle_unload,
        )
        log = self._logs.enter_context(contextlib.closing(ChildLog.open(name)))
        supervisor = Supervisor(
            charge,
            tuner.first(),
            self.events,
            tuner.reconsider,
            log,
            live=tuner,
            roster=self._roster,
        )
        return supervisor, tuner

    def _may_steer(self, name: str, prepared: Prepared) -> bool:
        if self.config.engine.live_policy == "off":
            return False
        reason = steering.why_not(prepared.engine, prepared.launch)
        if reason is not None:
            self.events.add(f"no live policy: {reason}", model=name, level="warning")
        return reason is None

    def _complain(self) -> None:
        failed = [one for one, _ in self._owned if one.life.phase is Phase.FAILED]
        if failed and len(failed) == len(self._owned):
            reasons = "; ".join(f"{one.name}: {one.life.reason}" for one in failed)
            raise ServeError(
                reasons, hint=f"the last lines of llama-server are in {ChildLog.folder()}"
            )

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("op") == "explain":
            tuned = {one.name: (tuner, one.setting) for one, tuner in self._owned}
            return await explaining.answer(request, tuned)
        if request.get("op") != "status":
            raise AutospecError(f"the daemon knows no {request.get('op')!r}")
        if self._engine is None or self._hardware is None or self._applier is None:
            raise AutospecError(
                "the daemon has only just started and is looking at its engine",
                hint="ask again in a moment",
            )
        document = report(
            [model_report(supervisor, tuner) for supervisor, tuner in self._owned],
            engine=self._engine,
            applier=self._applier,
            hardware=self._hardware.to_dict(),
            events=self.events,
            config=self.origin,
            pid=os.getpid(),
            began=self._began,
        )
        return document | {"starting": asdict(self._measuring) if self._measuring else None}


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
