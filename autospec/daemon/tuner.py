"""Follows one model's traffic and says when another setting should be put in force.

The owner of the child calls `steer` and `reconsider` after every reading. What they bring is put
aside, and taken in by the advisor in a thread beside the event loop, one batch at a time; what it
came to is acted on at the next call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from autospec.config.schema import RetuneSection
from autospec.daemon.choose import Model, choose
from autospec.daemon.events import Level
from autospec.daemon.memory import Memory
from autospec.daemon.retuning.advisor import KEPT, Advisor, Seen
from autospec.daemon.retuning.appliers import RequestFields, applier
from autospec.daemon.retuning.decide import Decision, Price, live_change
from autospec.daemon.retuning.explain import explain
from autospec.daemon.retuning.exploring import Budget
from autospec.daemon.retuning.knowledge import less
from autospec.daemon.retuning.remember import Remembered
from autospec.daemon.retuning.sources import sources_of
from autospec.daemon.retuning.steps import Step
from autospec.daemon.retuning.trying import Trying
from autospec.daemon.setting import Basis, Setting, plain
from autospec.daemon.steering import Room, Solved, Steering
from autospec.daemon.watch import NOTHING, Watch
from autospec.engine.live.applier import LiveSession
from autospec.engine.live.policy import at_most
from autospec.tuning.observations import Counters
from autospec.tuning.stopping import Policy

LOOK_SECONDS = 5.0
"""How often it is thought again."""

SHARE = 0.01
"""The share of one core that thinking may take: where models run on the processor, every moment of
it is taken from them. It is thought less often where a thought takes longer."""

_threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="advisor")


@dataclass(frozen=True)
class Thought:
    """What a batch of observations led to; `solved` is to be put in force if there is anything."""

    decision: Decision | None
    solved: Solved | None
    told: tuple[str, ...]


@dataclass
class _Inbox:
    moments: list[tuple[int, float, float]] = field(default_factory=list)
    spans: list[tuple[Counters, Basis]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


class Tuner:
    """`decision` tells what was thought last. `say` is told what the user should know.

    `reload` is how long a child takes from the decision to be replaced until the next one serves
    (seconds), as it was seen last; `side_by_side` whether both fit the machine at once. Without
    `background` everything is done within the call; `working` tells the processor time of the
    thread in seconds. With a `memory`, what traffic taught the model `name` is kept for the next
    start of the daemon.
    """

    def __init__(
        self,
        model: Model,
        settings: RetuneSection,
        memory: Memory | None = None,
        *,
        name: str = "model",
        say: Callable[[str, Level], None] = lambda _text, _level: None,
        background: bool = True,
        clock: Callable[[], float] = time.monotonic,
        working: Callable[[], float] = time.thread_time,
    ) -> None:
        self.name = name
        self._remembered = Remembered(memory, model, name)
        self.model = model = self._remembered.model(model) if model.tuned else model
        self.settings = settings
        self.decision: Decision | None = None
        self.why_not_live: str | None = None
        self.steering: Steering | None = None
        self.forced = False
        self.reload = 0.0
        self.side_by_side = False
        self.by = model.applier()
        self.advisor: Advisor | None = None
        if model.tuned:
            names = sources_of(model.able, drafted=model.drafted)
            free = settings.n_grams and model.config.type == "auto" and not model.config.pinned
            self.advisor = Advisor(
                model,
                settings,
                self.by,
                model.knowledge,
                trials=self._remembered.trials(),
                trying=Trying(self._remembered.sources(names if free else ())),
            )
        self._earlier = self._remembered.decisions(KEPT)
        self._say = say
        self._background = background
        self._clock = clock
        self._working = working
        self._looked = clock()
        self._pause = LOOK_SECONDS
        self._forced: Setting | None = None
        self._watch: Watch | None = None
        self._before = NOTHING
        self._read_at = clock()
        self._inbox = _Inbox()
        self._job: Future[Thought] | None = None
        self._session: LiveSession | None = None
        self._told: Policy | None = None

    def first(self) -> Setting:
        """The setting for the first child, and for one that takes the place of a refused one."""
        if self.forced:
            self._forced = self._forced or plain("you asked for plain decoding", "pinned")
            return self._forced
        setting = choose(self.known, self.by)
        if self.advisor is None:
            return setting
        if (why := self.advisor.bars(setting)) is not None:
            setting = replace(plain(why, plan=setting.plan), basis=setting.basis)
        return self.advisor.remembered(setting)

    async def explain(self, setting: Setting | None = None) -> dict[str, Any]:
        """Why the model runs as it does under `setting`, by default under its first one."""
        return await asyncio.wrap_future(_threads.submit(self.explained, setting))

    def explained(self, setting: Setting | None = None) -> dict[str, Any]:
        """`explain`, within the call."""
        return explain(
            self.name,
            self.known,
            setting or self.first(),
            self.advisor,
            not_live=self.why_not_live,
            budget=self.steering.budget if self.steering is not None else None,
            before=self._earlier[: KEPT - (len(self.advisor.decisions) if self.advisor else 0)],
        )

    def force_plain(self, forced: bool) -> None:
        """Plain decoding by the user's word, until it is taken back.

        A steered child stops drafting with its next round; the child without a draft follows as
        soon as the owner asks again.
        """
        self.forced = forced
        if forced and self._session is not None and self.steering is not None:
            self._session.put(at_most(0, self.steering.room.n_max))

    def request_fields(self) -> Mapping[str, float] | None:
        """What the front door adds to each request; None where that has no effect."""
        return self.by.fields if isinstance(self.by, RequestFields) else None

    def refuse_live(self, reason: str) -> Setting:
        """The setting for a child that cannot be steered; `why_not_live` keeps the reason."""
        self._finish()
        self.why_not_live = reason
        self.model = replace(self.known, live=False)
        self.by = applier(self.model.able, live=True, refusal=reason, added=self.model.added)
        self._session = None
        if self.advisor is not None:
            self.advisor.model, self.advisor.by = self.model, self.by
        return self.first()

    def steer(self, setting: Setting, session: LiveSession) -> None:
        """Read the rounds of the child under `session`, which is steered by what they teach."""
        if self.steering is None or self._session is not session:
            config, n_max = self.model.config, setting.speculation.n_max
            a_slot = self.model.context // config.slots
            room = Room(config.slots, a_slot, n_max, config.thresholds)
            self.steering = Steering(room, Budget(self.settings.explore))
            self._session, self._told = session, None
        self._inbox.steps += self.steering.read(session)

    def reconsider(self, current: Setting, watch: Watch) -> Setting | None:
        """Another setting when another child shall be started with it now, else None."""
        now = self._clock()
        self._gather(watch, now)
        if self.forced or current is self._forced:
            return self._by_word(current)
        if (advisor := self.advisor) is None:
            return None
        thought = None
        if self._job is not None and self._job.done():
            job, self._job = self._job, None
            thought = job.result()
        elif self._job is None and self._due(current, now):
            work = self._work(advisor, current, watch, now)
            if self._background:
                self._job = _threads.submit(work)
            else:
                thought = work()
        return None if thought is None else self._act(advisor, current, thought)

    def _by_word(self, current: Setting) -> Setting | None:
        """What the user's word asks for, now or no longer."""
        if self.forced:
            return self.first() if current.speculation.on else None
        self._forced = None
        wanted = self.first()
        return wanted if wanted.speculation.on else None

    @property
    def known(self) -> Model:
        """The model with all that its traffic has taught so far."""
        return self.model if self.advisor is None else self.advisor.current()

    def _finish(self) -> None:
        """Wait for the thought under way, and drop it."""
        job, self._job = self._job, None
        if job is not None:
            wait([job])

    def _gather(self, watch: Watch, now: float) -> None:
        """Put aside what the watch shows since the last call."""
        if watch is not self._watch:
            self._watch, self._before = watch, NOTHING
            self.reload = max(0.0, now - self._read_at)
            self._read_at = now
        seconds, self._read_at = now - self._read_at, now
        self._inbox.moments.append((watch.busy_now, watch.depth_now, seconds))
        if watch.total is not self._before:
            # Requests shorter than the time between readings are never caught at work.
            basis = Basis(watch.depth or 0.0, max(1, round(watch.busy or 1.0)))
            self._inbox.spans.append((less(watch.total, self._before), basis))
            self._before = watch.total

    def _due(self, current: Setting, now: float) -> bool:
        steering = self.steering if current.live else None
        return now - self._looked >= self._pause or (steering is not None and steering.due)

    def _work(
        self, advisor: Advisor, current: Setting, watch: Watch, now: float
    ) -> Callable[[], Thought]:
        """The work on all that was put aside; it touches nothing that the event loop does."""
        inbox, self._inbox = self._inbox, _Inbox()
        steering = self.steering if current.live else None
        solving = steering is not None and steering.due
        before = steering.solved if steering is not None else None
        near = steering.place if steering is not None else None
        looking = now - self._looked >= self._pause
        if looking:
            self._looked = now
        seen = Seen(
            now=now,
            setting=current,
            moments=inbox.moments,
            spans=inbox.spans,
            steps=inbox.steps,
            idle=watch.idle,
            rounds=watch.total.predicted - watch.total.accepted,
            traffic=now - watch.began if watch.began is not None else 0.0,
            price=Price(self.reload, self._lost_caches(watch), side_by_side=self.side_by_side),
        )

        def work() -> Thought:
            advisor.learn(seen)
            began = self._working()
            decision = advisor.think(seen, time.time()) if looking else None
            if looking:
                self._pause = max(LOOK_SECONDS, (self._working() - began) / SHARE)
            solved = None
            if steering is not None and solving:
                solved = steering.room.solve(
                    advisor.knowledge, before, near=near, zero=advisor.hold_zero
                )
            self._remembered.keep(advisor, now)
            told, advisor.told = tuple(advisor.told), []
            return Thought(decision, solved, told)

        return work

    def _lost_caches(self, watch: Watch) -> float:
        """Seconds that the prompts in the slots take to be evaluated again."""
        if self.advisor is None:
            return 0.0
        target = self.advisor.knowledge.costs.live.target
        a_token = target.step(target.max_batch).value / target.max_batch
        return (watch.depth or 0.0) * (watch.busy or 0.0) * a_token / 1000.0

    def _act(self, advisor: Advisor, current: Setting, thought: Thought) -> Setting | None:
        for text in thought.told:
            self._say(text, "info")
        if thought.solved is not None and current.live:
            self._put(advisor, thought.solved)
        if (decision := thought.decision) is None:
            return None
        if self.decision is None or decision.action != self.decision.action:
            self._say(f"{decision.action}: {decision.reason}", "info")
        self.decision = decision
        if decision.action == "change live" and self.by.put(advisor.choice()):
            return None
        return advisor.setting_for(decision) if decision.restarts else None

    def _put(self, advisor: Advisor, solved: Solved) -> None:
        """Put thresholds in force, and note it where they mean something else than before."""
        steering, session = self.steering, self._session
        if steering is None or session is None:
            return
        steering.put(session, solved, advisor.knowledge)
        if (present := steering.present) is None:
            return
        change = live_change(self._told, *present)
        if change is not None:
            self._told = present[0]
            advisor.record(change, time.time())
