"""The state file and one model's advisor: what is read at the start, and written as it learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autospec.daemon.choose import Model
from autospec.daemon.memory import Memory
from autospec.daemon.retuning import lessons
from autospec.daemon.retuning.advisor import Advisor, Record
from autospec.daemon.retuning.explain import readable, record_json
from autospec.daemon.retuning.sources import Sources
from autospec.daemon.retuning.trials import Trials
from autospec.tuning.survival import SurvivalModel

KEEP_EVERY = 60.0
"""Seconds between two writings of what was learned."""


class Remembered:
    """`memory` None: nothing is kept, and nothing is known from before."""

    def __init__(self, memory: Memory | None, model: Model, name: str) -> None:
        self._memory = memory
        self._key = model.calibration.key if model.calibration is not None else None
        self._lineage = lessons.lineage(model.config) if memory is not None else None
        self._name = name
        self._kept_at: float | None = None
        self._written: Record | None = None

    def model(self, model: Model) -> Model:
        """`model` with what traffic taught before, or what the same models did elsewhere."""
        if self._memory is None or self._key is None:
            return model
        known = self._memory.learned(self._key)
        if known is not None:
            try:
                taught, traffic = lessons.from_json(known, model.knowledge)
            except (ValueError, TypeError, KeyError):
                return model
            return replace(model, taught=taught, traffic=traffic)
        belief = self._elsewhere(model.longest)
        if belief is None:
            return model
        rehearsed = model.calibration.rounds if model.calibration is not None else ()
        taught = replace(model.knowledge, belief=belief.update(rehearsed))
        return replace(model, taught=taught)

    def trials(self) -> Trials:
        """What failed before."""
        known = self._memory.failed(self._key) if self._memory and self._key else None
        if known is None:
            return Trials()
        try:
            return lessons.trials_from_json(known)
        except (ValueError, TypeError, KeyError):
            return Trials()

    def sources(self, names: tuple[str, ...]) -> Sources:
        """What trials of the draft sources `names` have found."""
        known = self._memory.learned(f"{self._key}/sources") if self._memory and self._key else None
        try:
            return Sources(names).with_json(known) if known else Sources(names)
        except (ValueError, TypeError, KeyError):
            return Sources(names)

    def decisions(self, most: int) -> list[dict[str, Any]]:
        """The decisions of earlier lives of the daemon, the newest first."""
        if self._memory is None:
            return []
        return [one for one in self._memory.decisions(self._name, most) if readable(one)]

    def keep(self, advisor: Advisor, now: float, *, at_once: bool = False) -> None:
        """Write what is new, what was learned only every `KEEP_EVERY` seconds or `at_once`."""
        if self._memory is None or self._key is None:
            return
        last = advisor.decisions[-1] if advisor.decisions else None
        if last is not None and last is not self._written:
            before = self._written.decision if self._written else None
            self._written = last
            if before is None or (before.action, before.option) != (
                last.decision.action,
                last.decision.option,
            ):
                self._memory.decided(self._name, record_json(last))
                self._memory.fail(self._key, lessons.trials_to_json(advisor.trials))
        if not at_once and self._kept_at is not None and now - self._kept_at < KEEP_EVERY:
            return
        self._kept_at = now
        model = advisor.current()
        self._memory.learn(self._key, lessons.to_json(advisor.knowledge, model.traffic))
        if (sources := advisor.trying.sources).names:
            self._memory.learn(f"{self._key}/sources", sources.to_json())
        if self._lineage is not None:
            self._memory.learn(self._lineage, lessons.acceptance(advisor.knowledge.belief))

    def _elsewhere(self, longest: int) -> SurvivalModel | None:
        """Acceptance of the same two models under another engine, as a weak beginning."""
        if self._memory is None or self._lineage is None:
            return None
        known = self._memory.learned(self._lineage)
        try:
            return lessons.believed(known, longest, worth=lessons.WEAK) if known else None
        except (ValueError, TypeError, KeyError):
            return None
