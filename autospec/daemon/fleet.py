"""Every model that is served: made what the configuration orders, now and at each reload."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autospec.calibration.obtain import obtain, settings_of, stored
from autospec.calibration.result import Calibration
from autospec.calibration.run import Progress, Settings
from autospec.config.schema import Config
from autospec.daemon import steering
from autospec.daemon.child_log import ChildLog
from autospec.daemon.choose import Model
from autospec.daemon.events import Events, Level
from autospec.daemon.gate import Gate
from autospec.daemon.ladder import Step
from autospec.daemon.lifecycle import Phase
from autospec.daemon.memory import Memory
from autospec.daemon.orders import Change, Order, changes
from autospec.daemon.orphans import Roster
from autospec.daemon.pulse import Pulse
from autospec.daemon.setting import Setting
from autospec.daemon.supervisor import Supervisor
from autospec.daemon.terms import Charge
from autospec.daemon.tuner import Tuner
from autospec.daemon.watch import Watch
from autospec.engine.live.applier import LiveSession
from autospec.errors import CalibrationError, EngineError
from autospec.state.store import Store


@dataclass(frozen=True)
class Measuring:
    """A calibration under way: `share` of its budget is spent, `left` seconds remain at most."""

    model: str
    what: str
    share: float
    left: float | None


class Mind:
    """The tuner that the owner of a child asks; a reload puts another in its place."""

    def __init__(self, tuner: Tuner) -> None:
        self.tuner = tuner

    def reconsider(self, setting: Setting, watch: Watch) -> Setting | None:
        return self.tuner.reconsider(setting, watch)

    def refuse_live(self, reason: str) -> Setting:
        return self.tuner.refuse_live(reason)

    def request_fields(self) -> Mapping[str, float] | None:
        return self.tuner.request_fields()

    def steer(self, setting: Setting, session: LiveSession) -> None:
        self.tuner.steer(setting, session)


@dataclass
class Served:
    """One model at work. `task` runs its supervisor; it ends when the model has ended."""

    supervisor: Supervisor
    mind: Mind
    log: ChildLog
    task: asyncio.Task[None]

    @property
    def failed(self) -> bool:
        return self.task.done() and self.supervisor.life.phase is Phase.FAILED


class Fleet:
    """`become` makes it what is ordered; only one call of it at a time."""

    def __init__(
        self,
        events: Events,
        hardware: str,
        roster: Roster,
        store: Store,
        memory: Memory,
        *,
        measure: bool = True,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
    ) -> None:
        self.gates: dict[str, Gate] = {}
        self.served: dict[str, Served] = {}
        self.measuring: Measuring | None = None
        self.over = asyncio.Event()
        self.pulse = Pulse("the calibration")
        self._orders: dict[str, Order] = {}
        self._events = events
        self._hardware = hardware
        self._roster = roster
        self._store = store
        self._memory = memory
        self._measure = measure
        self._on_progress = on_progress

    def announce(self, names: Mapping[str, Order]) -> None:
        """Let requests for these models wait from now on."""
        for name in names:
            if name not in self.gates:
                self.gates[name] = Gate(name)

    async def become(self, config: Config, orders: Mapping[str, Order]) -> dict[str, Change]:
        """End, start, restart or re-tune until exactly `orders` are served; what was done.

        A model whose order has not changed is not touched. What has to be measured is measured
        before the model is started or restarted, one model after the other.
        """
        found = changes(self._orders, orders)
        await asyncio.gather(*(self._end(name) for name, c in found.items() if c is Change.GONE))
        self.announce(orders)
        wanted = {name: o for name, o in orders.items() if found[name] is not Change.NONE}
        calibrations = {}
        for name, order in wanted.items():
            for note in order.prepared.notes:
                self._events.add(note, model=name, level="warning")
            calibrations[name] = await self._calibration(order, settings_of(config))
        self.pulse.rest()
        self.measuring = None
        for name, order in wanted.items():
            restart = found[name] is Change.CHILD
            self._put(name, order, config, calibrations[name], restart=restart)
            self._orders[name] = order
        return found

    def stop(self, *, hurry: bool = False) -> None:
        """Drain and end every model. With `hurry`, at once."""
        for one in self.served.values():
            one.supervisor.stop(hurry=hurry)

    async def ended(self) -> None:
        """Until every model has ended."""
        if tasks := [one.task for one in self.served.values()]:
            await asyncio.wait(tasks)
        for one in self.served.values():
            one.log.close()

    @property
    def failures(self) -> list[Supervisor]:
        """The supervisors of all models if every one has failed for good, else nothing."""
        if not all(one.failed for one in self.served.values()):
            return []
        return [one.supervisor for one in self.served.values()]

    async def _end(self, name: str) -> None:
        self._events.add("no longer configured: ending it", model=name)
        served = self.served[name]
        served.supervisor.stop()
        await asyncio.wait({served.task})
        served.log.close()
        del self.served[name], self.gates[name], self._orders[name]

    async def _calibration(self, order: Order, settings: Settings) -> Calibration | None:
        """The costs of this model, measured now if they are not known; None without a draft."""
        launch = order.prepared.launch
        known = await asyncio.to_thread(
            stored, self._store, order.prepared, settings, self._hardware
        )
        if known is not None or not self._measure:
            return known
        if not launch.has_draft:
            text = (
                "there is no draft model; n-gram drafting is tried once "
                f"`autospec calibrate {launch.name}` has measured this one"
            )
            self._events.add(text, model=launch.name)
            return None
        self._events.add(
            f"first start with this model, engine and machine: measuring for up to "
            f"{settings.budget:.0f} s",
            model=launch.name,
        )
        patience = 4 * settings.budget + 4 * order.prepared.load_seconds
        self.pulse.promise(patience, f"measuring {launch.name}")

        def show(step: Progress) -> None:
            self._show(launch.name, step)

        try:
            return await obtain(self._store, order.prepared, settings, self._hardware, show)
        except (CalibrationError, EngineError, OSError) as error:
            self._events.add(f"not calibrated: {error}", model=launch.name, level="warning")
            return None

    def _show(self, name: str, step: Progress) -> None:
        """Show what is being measured; in the log only where another series begins."""
        series = step.what.partition(":")[0]
        before = self.measuring
        self.measuring = Measuring(name, step.what, step.share, step.left)
        if before is None or (before.model, before.what.partition(":")[0]) != (name, series):
            left = "" if step.left is None else f"; {step.left:.0f} s left at most"
            self._events.add(f"measuring {series}{left}", model=name)
        self._on_progress(step)

    def _put(
        self,
        name: str,
        order: Order,
        config: Config,
        calibration: Calibration | None,
        *,
        restart: bool,
    ) -> None:
        """Start the model `name`, or let the supervisor that it has take the new order."""
        live = calibration is not None and self._may_steer(order)
        able = order.prepared.engine.capabilities
        door = config.server.front_door
        model = Model(
            order.config, order.prepared.context, calibration, able, live=live, added=door
        )

        def say(text: str, level: Level) -> None:
            self._events.add(text, model=name, level=level)

        charge = charge_of(name, order, config)
        served = self.served.get(name)
        tuner = Tuner(model, config.retune, self._memory, name=name, say=say)
        if served is not None and not served.task.done():
            tuner.forced = served.mind.tuner.forced
            served.mind.tuner = tuner
            if restart:
                served.supervisor.apply(charge, tuner.first())
            else:
                served.supervisor.adopt(charge, tuner.first())
            return
        mind = Mind(tuner)
        if door:
            self.gates[name].fields = mind.request_fields
        log = served.log if served is not None else ChildLog.open(name)
        supervisor = Supervisor(
            charge,
            tuner.first(),
            self._events,
            mind.reconsider,
            log,
            live=mind,
            gate=self.gates[name] if door else None,
            roster=self._roster,
            steps=self._steps(charge),
            on_step=lambda steps: self._memory.degraded(
                self._place(self.served[name].supervisor.charge), steps[-1]
            ),
        )
        task = asyncio.create_task(supervisor.run(), name=f"supervisor of {name}")
        task.add_done_callback(lambda _task: self._see_whether_over())
        self.served[name] = Served(supervisor, mind, log, task)
        self.over.clear()

    def _steps(self, charge: Charge) -> list[Step]:
        """What memory did not allow this very launch before, here and with this engine."""
        tried = set(self._memory.degradations(self._place(charge)))
        return [step for step in Step if step in tried]

    def _place(self, charge: Charge) -> str:
        what = [self._hardware, charge.engine.identity, repr(charge.launch)]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]

    def _see_whether_over(self) -> None:
        if all(one.task.done() for one in self.served.values()):
            self.over.set()

    def _may_steer(self, order: Order) -> bool:
        if order.engine.live_policy == "off" or not order.prepared.launch.has_draft:
            return False
        reason = steering.why_not(order.prepared.engine, order.prepared.launch)
        if reason is not None:
            name = order.prepared.launch.name
            self._events.add(f"no live policy: {reason}", model=name)
        return reason is None


def charge_of(name: str, order: Order, config: Config) -> Charge:
    """What the owner of the child of `name` is given."""
    prepared = order.prepared
    return Charge(
        prepared.engine,
        prepared.launch,
        config.address(name).endpoint(config.server.api_key_file),
        prepared.env,
        order.load_seconds,
        context=prepared.context,
        draft_bytes=prepared.draft.size_bytes if prepared.draft else 0,
        on_gpu=prepared.on_gpu,
        drain=config.server.drain,
        idle_unload=order.config.idle_unload,
    )
