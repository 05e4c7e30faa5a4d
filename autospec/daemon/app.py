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

from autospec.calibration.run import Progress
from autospec.config.schema import Config
from autospec.config.values import Address
from autospec.daemon import explaining, orphans, steering
from autospec.daemon.child_log import ChildLog
from autospec.daemon.control import ControlServer
from autospec.daemon.events import Events
from autospec.daemon.fleet import Fleet
from autospec.daemon.front.server import FrontDoor
from autospec.daemon.history import EVERY, History
from autospec.daemon.memory import Memory
from autospec.daemon.notify import Notifier
from autospec.daemon.orders import Change, Order, orders
from autospec.daemon.pulse import Pulse, heartbeat
from autospec.daemon.report import model_report, report
from autospec.daemon.retuning.appliers import Applier
from autospec.engine.find import Engine, find_engine
from autospec.engine.waiting import unless, within_or_none
from autospec.errors import AutospecError, ServeError, UsageError
from autospec.hardware.snapshot import Hardware, snapshot
from autospec.state.recorder import Recorder
from autospec.state.store import Store

_LOOK_SECONDS = 300.0
"""Within which engine and model files have been looked at, also on a slow network drive."""


@dataclass(frozen=True)
class Options:
    """What the command line adds to the configuration.

    `load` reads the configuration again; None where it came from the command line.
    """

    engine: Path | None = None
    calibrate: bool = True
    on_progress: Callable[[Progress], None] = lambda _progress: None
    load: Callable[[], Config] | None = None


@dataclass(frozen=True)
class World:
    """The engine and the machine that the orders were made for."""

    engine: Engine
    hardware: Hardware
    applier: Applier
    orders: dict[str, Order]


@dataclass
class Daemon:
    """Serves every enabled model of `config`. `origin` says where the configuration is from."""

    config: Config
    origin: str
    options: Options = field(default_factory=Options)
    events: Events = field(default_factory=Events)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._world: World | None = None
        self._fleet: Fleet | None = None
        self._front: FrontDoor | None = None
        self._store = Store.open(say=functools.partial(self.events.add, level="warning"))
        self._history = History()
        self._notifier = Notifier.take(os.environ)
        self._pulse = Pulse("the start")
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()
        self._answers = {
            "status": self._status,
            "history": self._tell_history,
            "explain": self._explain,
            "reload": self._reload,
            "off": self._off,
            "on": self._on,
        }

    async def run(self) -> None:
        """Serve until a signal says stop.

        ServeError when no model can be kept up; AutospecError for what is wrong before that.
        """
        control = await ControlServer.open(self._answer)
        self._take_signals()
        recorder = Recorder(self._store)
        await asyncio.to_thread(self.events.keep_in, recorder)
        heart = asyncio.create_task(
            heartbeat(self._notifier, self._pulses, self._sentence, self.events)
        )
        try:
            async with contextlib.AsyncExitStack() as ending:
                await unless(self._stopping, self._begin(Memory(recorder), ending))
                await unless(self._stopping, self._watch_over())
        finally:
            heart.cancel()
            await control.close()
            await asyncio.to_thread(recorder.close)
            self._notifier.close()

    def stop(self) -> None:
        """Drain and end. Asked a second time: end at once."""
        hurry = self._stopping.is_set()
        self._stopping.set()
        self._notifier.stopping()
        self.events.add("stopping at once" if hurry else "stopping: draining first")
        if self._fleet is not None:
            self._fleet.stop(hurry=hurry)
        if hurry and self._front is not None:
            self._front.hurry()

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._asked_to_reload)

    def _pulses(self) -> list[Pulse]:
        if self._fleet is None:
            return [self._pulse]
        owners = (one.supervisor.pulse for one in self._fleet.served.values())
        return [self._pulse, self._fleet.pulse, *owners]

    def _sentence(self) -> str:
        """What goes on, for `systemctl status`."""
        if self._fleet is None:
            return "starting"
        if (measuring := self._fleet.measuring) is not None:
            return f"measuring {measuring.model}: {measuring.what}"
        served = self._fleet.served.items()
        return ", ".join(f"{name} {one.supervisor.life.phase}" for name, one in served)

    async def _begin(self, memory: Memory, ending: contextlib.AsyncExitStack) -> None:
        """Let requests in, which wait, and bring up every model."""
        self._pulse.promise(_LOOK_SECONDS, "looking at the engine and the model files")
        self._notifier.extend(_LOOK_SECONDS)
        roster, found = await asyncio.to_thread(orphans.take_over)
        ending.callback(roster.close)
        for sentence in found:
            self.events.add(sentence, level="warning")
        self._world = world = await asyncio.to_thread(self._look_around, self.config)
        engine = world.engine
        self.events.add(f"engine {engine.version} at {engine.folder} ({engine.source})")
        self._fleet = fleet = Fleet(
            self.events,
            world.hardware.key(),
            roster,
            self._store,
            memory,
            measure=self.options.calibrate,
            on_progress=self.options.on_progress,
        )
        fleet.announce(world.orders)
        if self.config.server.front_door:
            self._front = front = self._front_door(fleet)
            await front.start()
            ending.push_async_callback(front.stop)
        ending.push_async_callback(fleet.ended)
        self._pulse.rest()
        # What would end the start has been seen; all that is left can only make requests wait.
        self._notifier.ready()
        async with self._reloading:
            await fleet.become(self.config, world.orders)

    def _front_door(self, fleet: Fleet) -> FrontDoor:
        section = self.config.server
        return FrontDoor(fleet.gates, section, _addresses(self.config), self._models, self._answer)

    def _look_around(self, config: Config) -> World:
        """Engine, machine and model files: reads that can take seconds, in a thread."""
        engine = find_engine(self.options.engine or config.engine.path)
        live = config.engine.live_policy == "auto"
        return World(
            engine, snapshot(), steering.applier_of(engine, live=live), orders(config, engine)
        )

    async def _watch_over(self) -> None:
        """Until nothing is served any more. ServeError when that is because all have failed."""
        assert self._fleet is not None
        over = False
        while not over:
            self._history.sample(self._models(), time.time())
            await within_or_none(EVERY, self._fleet.over.wait())
            async with self._reloading:  # What a reload starts is not over.
                over = self._fleet.over.is_set()
        if failed := self._fleet.failures:
            reasons = "; ".join(f"{one.name}: {one.life.reason}" for one in failed)
            raise ServeError(
                reasons, hint=f"the last lines of llama-server are in {ChildLog.folder()}"
            )

    def _asked_to_reload(self) -> None:
        async def reload() -> None:
            with contextlib.suppress(AutospecError):
                await self._reload({})

        task = asyncio.create_task(reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Serve what the configuration says now. A bad one changes nothing, and is an error."""
        if self.options.load is None:
            raise UsageError("the configuration came from the command line: there is no file")
        async with self._reloading:
            self._notifier.reloading()
            try:
                config = await asyncio.to_thread(self.options.load)
                world = await asyncio.to_thread(self._look_around, config)
            except AutospecError as error:
                self.events.add(f"not reloaded, all stays as it is: {error}", level="error")
                raise
            finally:
                self._notifier.ready()
            return await self._become(config, world)

    async def _become(self, config: Config, world: World) -> dict[str, Any]:
        if self._fleet is None:
            raise AutospecError("the daemon has only just started", hint="ask again in a moment")
        if config.server.front_door != self.config.server.front_door:
            raise UsageError(
                "[server].front_door changes only at a restart",
                hint="restart the daemon: `systemctl restart autospec`",
            )
        self._fleet.announce(world.orders)
        if self._front is not None:
            gates = {name: self._fleet.gates[name] for name in world.orders}
            await self._front.update(gates, config.server, _addresses(config))
        self.config, self._world = config, world
        found = await self._fleet.become(config, world.orders)
        done = {name: str(change) for name, change in found.items() if change is not Change.NONE}
        text = ", ".join(f"{name}: {what}" for name, what in done.items()) or "nothing changed"
        self.events.add(f"configuration reloaded; {text}")
        return {"ok": True, "text": f"reloaded; {text}", "models": done}

    async def _off(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._force(request, plain=True)

    async def _on(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._force(request, plain=False)

    def _force(self, request: dict[str, Any], *, plain: bool) -> dict[str, Any]:
        served = self._fleet.served if self._fleet is not None else {}
        name = request.get("model")
        if name not in served:
            names = ", ".join(served) or "none yet"
            raise UsageError(f"no model is called {name!r}", hint=f"served are: {names}")
        served[name].mind.tuner.force_plain(plain)
        what = "plain decoding by your word" if plain else "speculation is chosen by measurement"
        self.events.add(what, model=name)
        return {"ok": True, "text": f"{name}: {what}"}

    def _models(self) -> list[dict[str, Any]]:
        served = self._fleet.served.values() if self._fleet is not None else ()
        return [model_report(one.supervisor, one.mind.tuner) for one in served]

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        operation = self._answers.get(str(request.get("op")))
        if operation is None:
            raise AutospecError(f"the daemon knows no {request.get('op')!r}")
        return await operation(request)

    async def _tell_history(self, _request: dict[str, Any]) -> dict[str, Any]:
        return {"samples": self._history.to_json()}

    async def _explain(self, request: dict[str, Any]) -> dict[str, Any]:
        served = self._fleet.served if self._fleet is not None else {}
        tuned = {name: (one.mind.tuner, one.supervisor.setting) for name, one in served.items()}
        return await explaining.answer(request, tuned)

    async def _status(self, _request: dict[str, Any]) -> dict[str, Any]:
        if self._world is None:
            raise AutospecError(
                "the daemon has only just started and is looking at its engine",
                hint="ask again in a moment",
            )
        document = report(
            self._models(),
            engine=self._world.engine,
            applier=self._world.applier,
            hardware=self._world.hardware.to_dict(),
            events=self.events,
            config=self.origin,
            pid=os.getpid(),
            began=self._began,
        )
        measuring = self._fleet.measuring if self._fleet is not None else None
        return document | {"starting": asdict(measuring) if measuring else None}


def _addresses(config: Config) -> dict[Address, str | None]:
    """Where the front door listens: for all models, and for those with an address of their own."""
    own = {m.listen: name for name, m in config.enabled_models().items() if m.listen}
    return {config.server.listen: None, **own}
