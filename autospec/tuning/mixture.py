"""A made-up day of a server: what it runs on, the texts it writes, and when how many slots do so.

Truth for the simulator: nothing here is known to the rules that are compared, which see only
noisy measurements of the machine and the rounds as the engine reports them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from autospec.tuning.calibration_map import sigmoid
from autospec.tuning.cost import CostSurface, StepTime
from autospec.tuning.replay import Trace
from autospec.tuning.restart import RestartPrice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]

SEGMENTS = 4
"""A phase whose depth grows is simulated at this many depths in turn."""


@dataclass(frozen=True)
class Text:
    """A token is accepted with chance σ(level + slope·logit p + u), u ~ N(0, round_sd²) a round."""

    level: float
    slope: float
    round_sd: float


@dataclass(frozen=True)
class Phase:
    """`tokens` of one text written by `slots` slots while the context grows over `depth`."""

    text: str
    slots: int
    depth: tuple[float, float]
    tokens: int

    def segments(self) -> list[tuple[float, int]]:
        """Depth and tokens of each part."""
        low, high = self.depth
        part = self.tokens // SEGMENTS
        return [(low + (high - low) * (i + 0.5) / SEGMENTS, part) for i in range(SEGMENTS)]


@dataclass(frozen=True, eq=False)
class Machine:
    """True step times; `steps` are (batch, depth, ms).

    A calibration sees each step with a relative error of `calibration_noise`, a round takes its
    true time with one of `round_noise`. Real rounds cost `round_overhead_ms` more than their
    steps, and real drafting is `draft_factor` times dearer than its.
    """

    target_steps: tuple[tuple[int, int, float], ...]
    draft_steps: tuple[tuple[int, int, float], ...]
    calibration_noise: float
    round_noise: float
    round_overhead_ms: float
    draft_factor: float

    @cached_property
    def target(self) -> CostSurface:
        return _surface(self.target_steps)

    @cached_property
    def draft(self) -> CostSurface:
        return _surface(self.draft_steps)

    def calibrated(self, random: np.random.Generator) -> tuple[CostSurface, CostSurface]:
        """What a calibration would have measured of target and draft."""

        def measured(steps: Sequence[tuple[int, int, float]]) -> CostSurface:
            error = np.exp(random.normal(0.0, self.calibration_noise, len(steps)))
            return _surface(
                [(b, d, ms * e) for (b, d, ms), e in zip(steps, error, strict=True)],
                self.calibration_noise,
            )

        return measured(self.target_steps), measured(self.draft_steps)

    def step_times(self, slots: int, depth: float, n_max: int) -> StepTimes:
        """True times of steps of `slots` slots at `depth` that draft up to `n_max` tokens each."""
        mean = 1.0 + np.arange(slots * n_max + 1) / slots
        verify = self.target.steps(mean, depth, slots)[0] + self.draft.steps(mean, depth, slots)[0]
        steps = [self.draft.step(1, depth, busy).value for busy in range(1, slots + 1)]
        return StepTimes(
            slots=slots,
            verify=verify + self.round_overhead_ms,
            draft=self.draft_factor * np.array([0.0, *steps]),
            plain=self.target.step(1, depth, slots).value,
        )


@dataclass(frozen=True, eq=False)
class StepTimes:
    """`verify[r]` for r drafted tokens in all slots together; `draft[n]` for n slots that draft;
    `plain` for a token of each slot where no draft is loaded.

    All slots draft in one batch until each has stopped, then all that they kept is verified in
    one batch. Times in ms.
    """

    slots: int
    verify: Floats
    draft: Floats
    plain: float = math.nan

    def drafting(self, paid: Ints) -> Floats:
        """Time of each step (n,) in which the slots pay `paid` draft steps, `slots` entries a
        step."""
        by_slot = paid.reshape(-1, self.slots)
        time = np.zeros(len(by_slot))
        for step in range(int(paid.max(initial=0))):
            time += self.draft[np.sum(by_slot > step, axis=1)]
        return time

    def verifying(self, kept: Ints) -> Floats:
        """Time of each step (n,) that verifies `kept` tokens, `slots` entries a step."""
        time: Floats = self.verify[kept.reshape(-1, self.slots).sum(axis=1)]
        return time


@dataclass(frozen=True, eq=False)
class Mixture:
    """All of it. `reported` is mean and standard deviation of logit p; `restart` is what it costs
    to load the target without the draft, or with it again, None where nobody does that."""

    seed: int
    n_max: int
    machine: Machine
    reported: tuple[float, float]
    texts: Mapping[str, Text]
    phases: tuple[Phase, ...]
    restart: RestartPrice | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mixture:
        """From a parsed mixture file; ValueError for one that lacks something."""
        try:
            machine = data["machine"]
            return cls(
                seed=int(data["seed"]),
                n_max=int(data["n_max"]),
                machine=Machine(
                    tuple((int(b), int(d), float(ms)) for b, d, ms in machine["target"]),
                    tuple((int(b), int(d), float(ms)) for b, d, ms in machine["draft"]),
                    float(machine["calibration_noise"]),
                    float(machine["round_noise"]),
                    float(machine["round_overhead_ms"]),
                    float(machine["draft_factor"]),
                ),
                reported=(float(data["reported"]["mean"]), float(data["reported"]["sd"])),
                texts={name: Text(**text) for name, text in data["texts"].items()},
                phases=tuple(
                    Phase(p["text"], int(p["slots"]), (p["depth"][0], p["depth"][1]), p["tokens"])
                    for p in data["phases"]
                ),
                restart=RestartPrice(**data["restart"]) if "restart" in data else None,
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"not a mixture: {error!r}") from error

    def draw(self, text: Text, rounds: int, random: np.random.Generator) -> Trace:
        """`rounds` full drafts of this text and what the target would accept of them."""
        shape = (rounds, self.n_max)
        odds = random.normal(self.reported[0], self.reported[1], shape)
        effect = random.normal(0.0, text.round_sd, (rounds, 1))
        q = sigmoid(text.level + text.slope * odds + effect)
        hits = random.random(shape) < q
        accepted = np.where(hits.all(axis=1), self.n_max, np.argmin(hits, axis=1))
        return Trace(sigmoid(odds), np.full(rounds, self.n_max, dtype=np.intp), accepted)


def _surface(steps: Sequence[tuple[int, int, float]], noise: float = 0.0) -> CostSurface:
    return CostSurface.from_steps(
        StepTime(batch, depth, ms, noise * ms, repeats=3) for batch, depth, ms in steps
    )
