"""A steered child that is made up: it drafts by the thresholds it is given, and reports rounds.

Times are those of a machine whose costs are known here, with noise; texts differ in how well the
draft knows them. The tuner sees what the library would report, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig, RetuneSection
from autospec.daemon.choose import Model
from autospec.daemon.setting import Setting
from autospec.daemon.tuner import Tuner
from autospec.daemon.watch import Watch, add
from autospec.engine.live.policy import LivePolicy
from autospec.engine.live.telemetry import LiveRound
from autospec.tuning.cost import StepTime
from autospec.tuning.observations import Counters, Round

LONGEST = 8
CONTEXT = 2048
NOISE = 0.04
DRAFT_MS = 2.0


def target_ms(batch: float, depth: float, busy: int) -> float:
    """A step of `busy` slots with `batch` tokens each: weights, tokens, attention."""
    total = batch * busy
    return 40.0 + 1.5 * total + 0.3 * max(0.0, total - 12.0) * 4.0 + busy * depth * 0.01


def calibration(disturbed: float = 1.0) -> Calibration:
    """Batches of more than 4 tokens were measured `disturbed` times too dear, and scattered so;
    then the rehearsal drafted no further either."""
    totals = (1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 24, 28, 32, 36)
    off = [disturbed if b > 4 else 1.0 for b in totals]
    target = [
        StepTime(b, 0, o * target_ms(b, 0, 1), 0.4 + (o - 1.0) * target_ms(b, 0, 1), 5)
        for b, o in zip(totals, off, strict=True)
    ]
    target += [StepTime(b, 1024, target_ms(b, 1024, 1), 0.5, 5) for b in (1, 4, 9)]
    return Calibration(
        key="live",
        model="m",
        made_at=0.0,
        seconds=1.0,
        engine_version="1",
        max_draft=LONGEST,
        target=tuple(target),
        draft=tuple(StepTime(b, 0, DRAFT_MS, 0.02, 5) for b in totals),
        rounds=rehearsal(LONGEST if disturbed == 1.0 else 3),
    )


@dataclass(frozen=True)
class Text:
    """A token for which the draft reports p is accepted with chance `worth`·p."""

    sure: float
    worth: float = 1.0

    def draw(self, random: np.random.Generator) -> tuple[float, bool]:
        p = float(np.clip(random.beta(4.0 * self.sure, 4.0 * (1.0 - self.sure)), 0.01, 0.99))
        return p, bool(random.random() < self.worth * p)


EASY = Text(0.92)
HARD = Text(0.35)
LYING = Text(0.92, worth=0.35)
"""The draft is as sure of itself as of easy text, and wrong."""


def rehearsal(length: int) -> tuple[Round, ...]:
    random = np.random.default_rng(1)
    rounds = []
    for _ in range(120):
        drawn = [Text(0.8).draw(random) for _ in range(length)]
        accepted = next((i for i, (_, hit) in enumerate(drawn) if not hit), length)
        verify = target_ms(length + 1, 100, 1) + DRAFT_MS
        rounds.append(Round(tuple(p for p, _ in drawn), accepted, length * DRAFT_MS, verify))
    return tuple(rounds)


@dataclass
class FakeSession:
    """What the tuner is given in place of a `LiveSession`."""

    table: LivePolicy | None = None
    puts: int = 0
    seen: list[LiveRound] = field(default_factory=list)

    def beat(self) -> None: ...

    def put(self, policy: LivePolicy, *, in_force: bool = True) -> int:
        assert in_force
        self.table = policy
        self.puts += 1
        return self.puts

    def rounds(self) -> list[LiveRound]:
        seen, self.seen = self.seen, []
        return seen


class LiveTraffic:
    """`slots` slots; `play` makes rounds and lets the owner of the child look every second."""

    def __init__(
        self, *, slots: int = 1, dearer: float = 1.0, disturbed: float = 1.0, **rules: Any
    ) -> None:
        self.random = np.random.default_rng(7)
        self.now = 0.0
        self.dearer = dearer
        self.said: list[str] = []
        config = ModelConfig(path="t.gguf", draft="d.gguf", context=slots * CONTEXT, slots=slots)
        self.tuner = Tuner(
            Model(config, slots * CONTEXT, calibration(disturbed), live=True),
            RetuneSection(**{"after": 30.0, **rules}),
            say=lambda text, _level: self.said.append(text),
            background=False,
            clock=lambda: self.now,
            working=lambda: 0.0,
        )
        self.setting: Setting = self.tuner.first()
        self.settings = [self.setting]
        self.session = FakeSession()
        self.watch = Watch()
        self.depths = [100] * slots
        self.lengths: list[int] = []
        self.longer = 0
        self.rounds = 0
        self._looked = 0.0

    def play(self, text: Text, rounds: int, *, busy: int = 1, grow: bool = False) -> float:
        """So many rounds of all slots together; tokens/s over all slots. Depths stay about 100
        without `grow`."""
        made, began = 0, self.now
        until = self.rounds + rounds
        while self.rounds < until:
            made += self._step(text, busy, grow=grow)
            if self.now - self._looked >= 1.0:
                self._look(busy)
        return made / (self.now - began)

    def _step(self, text: Text, busy: int, *, grow: bool) -> int:
        if not self.setting.speculation.on:
            ms = target_ms(1, self.depths[0], busy) * self._noise()
            self.now += ms / 1000.0
            self.rounds += busy
            self._count(busy, 0, 0, busy, ms)
            return busy
        drafts = [self._draft(text, slot, busy) for slot in range(busy)]
        kept = [drafted for _, drafted, _, _ in drafts]
        paid = max(drafted + (cut is not None) for _, drafted, _, cut in drafts)
        draft_ms = paid * DRAFT_MS * self._noise()
        depth = float(np.mean(self.depths[:busy]))
        batch = 1.0 + sum(kept) / busy
        verify_ms = self.dearer * (target_ms(batch, depth, busy) + DRAFT_MS) * self._noise()
        began, made = self.now, 0
        for slot, (p, drafted, accepted, cut) in enumerate(drafts):
            self.session.seen.append(
                LiveRound(
                    Round(p, accepted, draft_ms, verify_ms, cut),
                    slot=slot,
                    busy=busy,
                    depth=self.depths[slot],
                    began=began,
                    policy=self.session.puts,
                    obeyed=self.session.table is not None,
                    cut=cut is not None,
                    skipped=drafted == 0 and cut is None,
                    second=(),
                    purity=(),
                )
            )
            self.depths[slot] += accepted + 1
            if not grow and self.depths[slot] > 160:
                self.depths[slot] = 100
            made += accepted + 1
            self.lengths.append(drafted)
        self.now += (draft_ms + verify_ms) / 1000.0
        self.rounds += busy
        self._count(busy, sum(kept), made - busy, made, draft_ms + verify_ms)
        return made

    def _draft(
        self, text: Text, slot: int, busy: int
    ) -> tuple[tuple[float, ...], int, int, float | None]:
        """p of the kept tokens, their number, how many are accepted, and p of the one cut."""
        drawn = [text.draw(self.random) for _ in range(LONGEST)]
        kept, cut = LONGEST, None
        if (table := self.session.table) is not None:
            row = table.thresholds[min(busy, len(table.thresholds)) - 1]
            bucket = int(np.searchsorted(table.depth_from, self.depths[slot], side="right")) - 1
            limit = max((i + 1 for i, t in enumerate(row[bucket]) if t <= 1.0), default=0)
            kept = table.kept([p for p, _ in drawn[:limit]], busy=busy, depth=self.depths[slot])
            cut = drawn[kept][0] if kept < limit else None
        accepted = next((i for i, (_, hit) in enumerate(drawn[:kept]) if not hit), kept)
        return tuple(p for p, _ in drawn[:kept]), kept, accepted, cut

    def _noise(self) -> float:
        return float(np.exp(self.random.normal(0.0, NOISE)))

    def _count(self, rounds: int, drafted: int, accepted: int, made: int, ms: float) -> None:
        counted = Counters(rounds, drafted, accepted, (), made, rounds * ms / 1000.0)
        self.watch.total = add(self.watch.total, counted)

    def _look(self, busy: int) -> None:
        self._looked = self.now
        watch = self.watch
        watch.began = watch.began if watch.began is not None else self.now
        watch.busy_now, watch.depth_now = busy, float(np.mean(self.depths[:busy]))
        watch._readings += 1
        watch._busy_sum += busy
        watch._depth_sum += watch.depth_now
        if self.setting.live:
            self.tuner.steer(self.setting, self.session)  # type: ignore[arg-type]
        better = self.tuner.reconsider(self.setting, watch)
        if better is not None:
            self.setting = better
            self.settings.append(better)
            self.watch, self.session = Watch(), FakeSession()
            self.now += 3.0
