"""Trials of other draft sources: when one begins, what it shows, what follows. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from autospec.config.schema import RetuneSection
from autospec.daemon.choose import Model
from autospec.daemon.retuning.decide import Action, Decision, Option, Rate, Standing, may_try
from autospec.daemon.retuning.gate import Gate
from autospec.daemon.retuning.sources import TRIAL, Sources, in_words, speculation_of
from autospec.daemon.setting import Setting, Source
from autospec.engine.capabilities import DRAFT_SIMPLE
from autospec.engine.launch import Speculation
from autospec.tuning.plan import Plan
from autospec.tuning.projection import Scalar


@dataclass
class Trying:
    """`on_trial` is the source whose trial has begun and is not judged yet."""

    sources: Sources = field(default_factory=Sources)
    on_trial: str | None = None

    def proposed(self, standing: Standing, rules: RetuneSection) -> Decision | None:
        """A trial that may begin now."""
        name = self.sources.due
        if name is None or not may_try(standing, rules):
            return None
        reason = f"{name} is tried for {TRIAL} rounds: nothing else tells what it does on this text"
        return Decision("try a source", name, reason, tuple(standing.options))

    def decision(self, name: str, standing: Standing, gate: Gate, plain: Rate) -> Decision:
        """Keep `name` until it has shown what it does, and then the better of it and what was in
        force before."""
        options = tuple(standing.options)
        if gate.rounds < TRIAL:
            reason = f"{name} is on trial: {gate.rounds} of {TRIAL} rounds"
            return Decision("keep", name, reason, options)
        others = [one for one in options if one.how == "restart"]
        before = next((one for one in others if one.name == standing.previous), None)
        before = before or next(one for one in others if one.plain)
        won = standing.in_force.rate.value >= before.rate.value
        words = self.judged(name, gate, plain, before, won=won)
        if won:
            return Decision("keep", name, words, options)
        action: Action = "restart without a draft" if before.plain else "back to previous"
        return Decision(action, before.name, words, options)

    def judged(
        self, name: str, gate: Gate, plain: Rate, before: Option | None = None, *, won: bool = False
    ) -> str:
        """End the trial of `name`; what it found, beside what was in force `before`."""
        self.on_trial = None
        self.sources = self.sources.judged(name, gate, won=won)
        beside = [] if before is None or before.plain else [before]
        others = [(one.name, one.rate.value / plain.value) for one in beside]
        return in_words(name, self.sources.tried[name], others)

    def options(self, plain: Rate, known: set[str]) -> Iterator[Option]:
        """Sources that were tried and are not `known` options yet."""
        for name, tried in self.sources.tried.items():
            if name not in known:
                sd = plain.value * tried.spread
                rate = plain.times(tried.over_plain, sd=sd, measured=True)
                yield Option(name, rate, "restart")

    def better(self, setting: Setting, min_gain: float) -> tuple[str, str] | None:
        """A source that did better on this traffic than `setting` promises, and why it is taken."""
        plan, tried = setting.plan, self.sources.tried
        if plan is None or not tried:
            return None
        name = max(tried, key=lambda one: tried[one].over_plain)
        promised = plan.rate / plan.plain_rate if setting.speculation.on else 1.0
        if tried[name].over_plain < promised * (1.0 + min_gain):
            return None
        return name, in_words(name, tried[name], [("what would be chosen without it", promised)])


def setting_from(name: str, model: Model, plan: Plan, scalar: Scalar | None, why: str) -> Setting:
    """The setting that drafts from the source `name`, with `scalar` for the draft model."""
    draft = Speculation()
    if scalar is not None:
        draft = Speculation((DRAFT_SIMPLE,), scalar.n_max, scalar.n_min, scalar.p_min)
    speculation = speculation_of(name, model.knowledge, model.basis, draft)
    values: dict[str, Source] = dict.fromkeys(("type", "n_max", "n_min", "p_min"), "auto")
    unmeasured = replace(plan, speculate=False, reason=why)
    return Setting(speculation, why, values, unmeasured, model.basis)
