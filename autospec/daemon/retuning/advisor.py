"""Learns from one model's traffic and decides about its setting. No clock, no I/O.

The tuner feeds it what was seen since the last time; `think` answers with what shall be done.
Both may take some tens of milliseconds, so they run beside the event loop, one at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autospec.config.schema import RetuneSection
from autospec.daemon.choose import Model, beside_pins, choice_of, predict, speculating
from autospec.daemon.retuning.appliers import Applier, Choice, RequestFields
from autospec.daemon.retuning.costs import OTHER_WORK
from autospec.daemon.retuning.decide import (
    FREE,
    LIVE,
    PLAIN,
    VECTOR,
    ZERO,
    Decision,
    How,
    Leaning,
    Option,
    Price,
    Rate,
    Standing,
    decide,
    lean,
)
from autospec.daemon.retuning.gate import FEWEST, Gate
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.retuning.moments import Moments
from autospec.daemon.retuning.options import Mixture, Outlook, named
from autospec.daemon.retuning.sources import source_of
from autospec.daemon.retuning.steps import Step
from autospec.daemon.retuning.trials import Regime, Trial, Trials
from autospec.daemon.retuning.trying import Trying, setting_from
from autospec.daemon.setting import Basis, Setting, plain
from autospec.engine.capabilities import DRAFT_SIMPLE
from autospec.engine.launch import Speculation
from autospec.tuning.observations import Counters
from autospec.tuning.projection import Scalar

PARTED = 2.0
"""Prediction and measurement part where they differ by so many standard deviations."""

ENOUGH_ROUNDS = 50
"""Rounds of real traffic before a choice is made from them."""

LATELY = 128
"""Rounds after which measurement is set against newer predictions alone."""

KEPT = 10
"""Decisions that are kept to be explained."""


@dataclass(frozen=True)
class Seen:
    """What came in since the last time, under `setting`; times in seconds.

    `moments` are (busy slots, mean depth, seconds), `spans` what the engine counted and at about
    which load and depth, `steps` what the live library reported. `rounds` were verified since
    the setting came into force, and traffic has come for `traffic` seconds.
    """

    now: float
    setting: Setting
    moments: Sequence[tuple[int, float, float]] = ()
    spans: Sequence[tuple[Counters, Basis]] = ()
    steps: Sequence[Step] = ()
    idle: bool = False
    rounds: int = 0
    traffic: float = 0.0
    price: Price = FREE


@dataclass(frozen=True)
class Record:
    """A decision, and when it was made (seconds since 1970)."""

    at: float
    decision: Decision


@dataclass
class Advisor:
    """`told` are sentences for the user that have not been fetched yet. `against_plain` judges the
    setting in force; `lately` has the same for its last rounds alone."""

    model: Model
    rules: RetuneSection
    by: Applier
    knowledge: Knowledge
    moments: Moments = field(default_factory=Moments)
    against_plain: Gate = field(default_factory=Gate)
    lately: Gate = field(default_factory=lambda: Gate(most=LATELY))
    against_prediction: Gate = field(default_factory=lambda: Gate(most=LATELY))
    trials: Trials = field(default_factory=Trials)
    trying: Trying = field(default_factory=Trying)
    decisions: deque[Record] = field(default_factory=lambda: deque(maxlen=KEPT))
    restarts: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    options: tuple[Option, ...] = ()
    hold_zero: bool = False
    _setting: Setting | None = None
    _previous: tuple[str, Setting] | None = None
    _leaning: Leaning | None = None
    _wanted: float | None = None
    _parted: bool = False
    _scalar: Scalar | None = None
    _predicted: dict[Regime, float] = field(default_factory=dict)
    _last: Outlook | None = None

    def learn(self, seen: Seen) -> None:
        """Take in what was seen."""
        if self._setting is not seen.setting:
            self._changed(seen.setting)
        for moment in seen.moments:
            self.moments = self.moments.observe(*moment)
        epoch = self.knowledge.epoch
        for step in seen.steps:
            self._step(step)
        if seen.steps:
            self.knowledge = self.knowledge.after_steps(seen.steps)
            self.told += self.knowledge.told
        rounds = sum(len(step.rounds) for step in seen.steps)
        for span, basis in seen.spans:
            if not seen.setting.live:
                self._count(span, basis, seen.setting)
                rounds += max(0, span.predicted - span.accepted)
        self.trying.sources = self.trying.sources.after(rounds)
        if self.knowledge.epoch != epoch:
            self.trials, self.hold_zero = Trials(), False
            self.trying.sources = self.trying.sources.forgotten()
            self._anew()

    def think(self, seen: Seen, at: float) -> Decision | None:
        """Decide; None where nothing can be said yet. `at` in seconds since 1970."""
        mixture = self.moments.mixture()
        if not mixture or self._setting is None:
            return None
        outlook = self._outlook(mixture, seen)
        self.options = self.weigh(outlook, seen.setting)
        standing = Standing(
            now=seen.now,
            options=self.options,
            price=seen.price,
            leaning=self._leaning,
            working=self.moments.working,
            idle=seen.idle,
            slower=self._slower(outlook),
            previous=self._previous[0] if self._previous else None,
            wanted=self._wanted,
            restarts=self.restarts,
        )
        self._leaning = lean(self._leaning, standing, self.rules)
        standing = replace(standing, leaning=self._leaning)
        name = self.trying.on_trial
        if name is not None and name == self._source and not standing.slower:
            decision = self.trying.decision(name, standing, self.against_plain, outlook.plain)
            if self.trying.on_trial is None:
                self.told.append(decision.reason)
        elif standing.slower or self._due(seen):
            decision = decide(standing, self.rules)
            if decision.action == "keep" and self._source is None:
                decision = self.trying.proposed(standing, self.rules) or decision
        else:
            return None
        self._note(decision, standing, outlook, at)
        return decision

    def _outlook(self, mixture: Mixture, seen: Seen) -> Outlook:
        """The outlook by what is known now; the last one where nothing happened since."""
        quiet = not (seen.steps or seen.spans or any(busy for busy, _, _ in seen.moments))
        if self._last is None or not quiet or self._last.knowledge is not self.knowledge:
            self._last = Outlook.of(self.knowledge, mixture)
        return self._last

    def setting_for(self, decision: Decision) -> Setting:
        """The setting of a decision that takes another child."""
        model = self.current()
        if decision.action == "back to previous" and self._previous is not None:
            return replace(self._previous[1], reason=decision.reason)
        plan = predict(model)
        if decision.option in self.trying.sources.names:
            scalar = self._scalar or plan.scalar
            return setting_from(decision.option, model, plan, scalar, decision.reason)
        if decision.option == PLAIN:
            setting = replace(plain(decision.reason, plan=plan), basis=model.basis)
            return beside_pins(model, setting)
        plan = replace(plan, speculate=True, scalar=self._scalar or plan.scalar)
        setting = speculating(model, plan, self.by)
        return beside_pins(model, replace(setting, reason=decision.reason))

    def remembered(self, setting: Setting) -> Setting:
        """The source that did better on this traffic than `setting` promises; else `setting`."""
        better = self.trying.better(setting, self.rules.min_gain)
        if better is None or setting.plan is None:
            return setting
        name, why = better
        return setting_from(name, self.current(), setting.plan, setting.plan.scalar, why)

    def bars(self, setting: Setting) -> str | None:
        """Why `setting` is not to be started with: it was slower than plain decoding before."""
        if not setting.speculation.on or self.model.pins.speculate is not None:
            return None
        name, regime = _name(setting), Regime.of(self.current().basis)
        if (trial := self.trials.failed.get((name, regime))) is None:
            return None
        return (
            f"off: {name} measured {trial.over_plain:.2f}x of plain decoding at {regime}; tried "
            "again when costs or acceptance have changed"
        )

    def choice(self) -> Choice:
        """What the applier is given to put in force without a restart."""
        model = self.current()
        plan = predict(model)
        return choice_of(model, replace(plan, scalar=self._scalar or plan.scalar))

    def current(self) -> Model:
        """The model as it is known now, for the load and depth of most of the time."""
        mixture = self.moments.mixture()
        traffic = self.model.traffic
        if mixture:
            traffic = replace(mixture[0][0], rounds=self.against_plain.rounds)
        return replace(self.model, taught=self.knowledge, traffic=traffic)

    @property
    def _source(self) -> str | None:
        """The source in force, where it is not the draft model alone."""
        return source_of(self._setting.speculation) if self._setting is not None else None

    def _anew(self) -> None:
        """Measure from here on."""
        self.against_plain = Gate()
        self.lately = self.against_prediction = Gate(most=LATELY)

    def _changed(self, setting: Setting) -> None:
        """Another setting came into force."""
        before = self._setting
        if before is not None and before.speculation != setting.speculation:
            self._previous = (_name(before), before)
        self._setting, self.hold_zero = setting, False
        if self.trying.on_trial != source_of(setting.speculation):
            self.trying.on_trial = None
        self._anew()
        self._leaning = self._wanted = None
        self._parted = False
        self._predicted.clear()

    def _step(self, step: Step) -> None:
        """Set one live step against plain decoding, and against its prediction."""
        basis, costs = Basis(step.depth, step.busy), self.knowledge.costs
        ms = min(step.whole_ms, OTHER_WORK * costs.expected_ms(step))
        if ms <= 0.0:
            return
        plain_tokens = costs.at(basis).plain_rate * ms / 1000.0
        self.against_plain = self.against_plain.step(step.tokens, plain_tokens)
        self.lately = self.lately.step(step.tokens, plain_tokens)
        predicted = self._expected(basis) * ms / 1000.0
        self.against_prediction = self.against_prediction.step(step.tokens, predicted)

    def _expected(self, basis: Basis) -> float:
        """Predicted tokens/s of the setting in force at `basis`; remembered until `think`."""
        assert self._setting is not None
        key = Regime.of(basis)
        if key not in self._predicted:
            near = Outlook.of(self.knowledge, ((basis, 1.0),))
            self._predicted[key] = self._value_of(near, self._setting)
        return self._predicted[key]

    def _count(self, span: Counters, basis: Basis, setting: Setting) -> None:
        """Set counters against plain decoding and their prediction, and learn from them."""
        under = self._under(setting)
        if under.on and span.predicted_seconds > 0.0:
            alone = span.predicted_seconds / basis.busy
            plain_rate = self.knowledge.costs.at(basis).plain_rate
            self.against_plain = self.against_plain.span(span, plain_rate * alone)
            self.lately = self.lately.span(span, plain_rate * alone)
            expected = self._expected(basis) * alone
            self.against_prediction = self.against_prediction.span(span, expected)
        if source_of(under) is not None:
            return
        if not under.on or self.by.name in ("scalar", "request-fields"):
            self.knowledge = self.knowledge.after_span(span, basis, under)
            self.told += self.knowledge.told

    def _under(self, setting: Setting) -> Speculation:
        """The numbers that drafts follow: those of requests, where they carry some."""
        fields = self.by.fields if isinstance(self.by, RequestFields) else None
        if fields is None or not setting.speculation.on:
            return setting.speculation
        n_max, n_min, p_min = fields.values()
        return replace(setting.speculation, n_max=int(n_max), n_min=int(n_min), p_min=p_min)

    def _value_of(self, outlook: Outlook, setting: Setting) -> float:
        """What is predicted for a setting, without its doubt."""
        speculation = setting.speculation
        if setting.live and speculation.on and source_of(speculation) is None:
            return outlook.vector_value(speculation.n_max)
        return self._rate_of(outlook, setting).value

    def _rate_of(self, outlook: Outlook, setting: Setting) -> Rate:
        """What is predicted for a setting."""
        if not setting.speculation.on or source_of(setting.speculation) is not None:
            # Of a source nothing is known before it was tried.
            return outlook.plain
        if setting.live:
            return outlook.vector(setting.speculation.n_max)
        if setting.environment:
            return outlook.environment()
        return outlook.flags(self._under(setting))

    def weigh(self, outlook: Outlook, setting: Setting) -> tuple[Option, ...]:
        """The setting in force and its alternatives."""
        regime = Regime.of(outlook.mixture[0][0])
        present = _name(setting, self._under(setting))
        options = [Option(present, self._present(outlook, setting), "in force", present == PLAIN)]
        if setting.speculation.on and self.model.pins.speculate is None:
            options.append(Option(PLAIN, outlook.plain, "restart", plain=True))
        if setting.live:
            options.append(Option(ZERO, outlook.zero(), "live"))
        worth = self.trials.correction(regime)
        if (ratio := self.against_prediction.ratio) is not None and self._parted:
            worth = min(worth, ratio)
        name, rate = self.candidate(outlook)
        if self.model.drafted and name != present and not self.trials.bars(name, regime):
            how: How = "live" if setting.speculation.on and not self.by.needs_restart else "restart"
            options.append(Option(name, rate.times(worth), how))
        known = {one.name for one in options}
        options += self.trying.options(outlook.plain, known)
        if source_of(setting.speculation) is not None and self._previous is not None:
            name, before = self._previous
            if name not in known and source_of(before.speculation) is None:
                options.append(Option(name, self._rate_of(outlook, before).times(worth), "restart"))
        return tuple(options)

    def candidate(self, outlook: Outlook) -> tuple[str, Rate]:
        """The best that the applier could put in force."""
        longest = self.model.config.n_max or self.model.longest
        self._scalar = None
        if self.by.name == "live":
            return LIVE, outlook.vector(longest)
        if self.by.name == "cost-vector":
            return VECTOR, outlook.environment()
        self._scalar, rate = outlook.best_flags(self.model.pins)
        return named(
            Speculation((DRAFT_SIMPLE,), self._scalar.n_max, self._scalar.n_min, self._scalar.p_min)
        ), rate

    def _present(self, outlook: Outlook, setting: Setting) -> Rate:
        """The rate of the setting in force: predicted, unless it measures otherwise."""
        predicted = self._rate_of(outlook, setting)
        self._predicted.clear()
        if source_of(setting.speculation) is not None:
            gate = self.against_plain
            if gate.ratio is None or gate.rounds < FEWEST:
                return predicted
            sd = outlook.plain.value * gate.spread
            return outlook.plain.times(gate.ratio, sd=sd, measured=True)
        ratio, spread = self.against_prediction.ratio, self.against_prediction.spread
        if ratio is None or self.against_prediction.rounds < FEWEST:
            return predicted
        value, worse, better = predicted.worlds
        doubt = max(abs(value - worse), abs(better - value)) / value
        unlikely = PARTED * math.hypot(spread, doubt)
        over_plain = self.lately.ratio or 0.0
        measured = predicted.times(
            over_plain * outlook.plain.value / value, sd=value * spread, measured=True
        )
        # Unlike what was predicted then, and unlike what is predicted now.
        parted = min(abs(ratio - 1.0), abs(measured.value / value - 1.0)) > unlikely
        if parted and not self._parted:
            self.told.append(
                f"{measured.value:.1f} tokens/s measured where {predicted.value:.1f} were "
                "predicted: the measurement counts"
            )
        self._parted = parted
        return measured if parted else predicted

    def _slower(self, outlook: Outlook) -> bool:
        """The gate's verdict; pinned speculation is the user's own business."""
        if self.model.pins.speculate is not None:
            return False
        doubt = self.knowledge.costs.plain_sd(outlook.mixture[0][0])
        return self.against_plain.slower(doubt)

    def _due(self, seen: Seen) -> bool:
        """Whether there is enough traffic under this setting to judge others."""
        if not self.rules.enabled or seen.traffic < self.rules.after:
            return False
        return not seen.setting.speculation.on or seen.rounds >= ENOUGH_ROUNDS

    def _note(self, decision: Decision, standing: Standing, outlook: Outlook, at: float) -> None:
        """Remember what follows from a decision."""
        waiting = decision.action == "restart when idle"
        self._wanted = (self._wanted or standing.now) if waiting else None
        if decision.action == "try a source":
            self.trying.on_trial = decision.option
        if standing.slower and (source := self._source) is not None:
            self.told.append(self.trying.judged(source, self.against_plain, outlook.plain))
        elif standing.slower:
            regime, gate = Regime.of(outlook.mixture[0][0]), self.against_plain
            trial = Trial(gate.ratio or 0.0, self.against_prediction.ratio or 1.0)
            self.trials = self.trials.blamed(standing.in_force.name, regime, trial)
        if decision.action == "live k = 0":
            self.hold_zero = True
            self._anew()
        if decision.restarts:
            self.restarts.append(standing.now)
        self.record(decision, at)

    def record(self, decision: Decision, at: float) -> None:
        """Keep a decision to be explained; one like the last takes its place."""
        last = self.decisions[-1].decision if self.decisions else None
        same = last is not None and (last.action, last.option) == (decision.action, decision.option)
        if same and not decision.restarts:
            self.decisions[-1] = Record(at, decision)
        else:
            self.decisions.append(Record(at, decision))


def _name(setting: Setting, under: Speculation | None = None) -> str:
    if setting.environment and setting.speculation.on:
        return VECTOR
    return named(under or setting.speculation, live=setting.live)
