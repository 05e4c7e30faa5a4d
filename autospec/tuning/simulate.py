"""Simulated phases: one static triple against settings that follow what is happening.

The tuner here runs the code that the daemon runs (calibrated costs, learned acceptance, the
optimal rule for the slots and the depth at hand, drift detection) on rounds of a `Mixture`,
in the order in which they come, with what it has learned so far. The static triple is the best
of all for the whole mixture in hindsight; both play the same rounds on the same machine. The
tuner drafts by thresholds, or does not draft with the draft loaded; where the mixture has a price
for it, it may also restart without the draft, and with it again (`restart`). While no draft is
loaded nothing is learned of the text: what texts were like for long is then believed of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from autospec.tuning.cost import DraftCost
from autospec.tuning.following import Tuner
from autospec.tuning.livecost import LiveCost
from autospec.tuning.observations import Round
from autospec.tuning.replay import (
    Cut,
    Trace,
    Triple,
    cut_vector,
    cut_where,
    every_triple,
    thrown_away,
    tokens,
)
from autospec.tuning.survival import SurvivalModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from autospec.tuning.mixture import Mixture, Phase, StepTimes
    from autospec.tuning.stopping import Policy

    Floats = NDArray[np.float64]

BLOCK = 48
"""Rounds, over all slots, between two looks at what was learned."""

PROBE = 16
"""Where drafting does not pay, one step in this many drafts anyway, to see when it would."""

PROBE_LENGTH = 2


@dataclass(frozen=True)
class Result:
    """Tokens per second by phase and over all; `triple` is the best single one in hindsight,
    `plain` what a server without a draft makes."""

    phases: tuple[Phase, ...]
    tuned: tuple[float, ...]
    static: tuple[float, ...]
    best_of_phase: tuple[float, ...]
    plain: tuple[float, ...]
    triple: Triple
    alarms: int
    restarts: int

    def total(self, rates: Sequence[float]) -> float:
        """The rate over all phases of contenders that had `rates` in each."""
        seconds = sum(p.tokens / rate for p, rate in zip(self.phases, rates, strict=True))
        return sum(phase.tokens for phase in self.phases) / seconds

    @property
    def ratio(self) -> float:
        """How much faster the tuner was than the best single static triple."""
        return self.total(self.tuned) / self.total(self.static)

    def to_json(self) -> dict[str, Any]:
        """Plain values; rates in tokens per second."""
        rates = {
            "tuned": self.tuned,
            "best_triple": self.static,
            "best_triple_of_phase": self.best_of_phase,
            "plain": self.plain,
        }
        return {
            "phases": [
                {"text": phase.text, "slots": phase.slots, "depth": list(phase.depth)}
                | {"tokens": phase.tokens}
                | {name: values[index] for name, values in rates.items()}
                for index, phase in enumerate(self.phases)
            ],
            "total": {name: self.total(values) for name, values in rates.items()},
            "triple": self.triple._asdict(),
            "ratio": self.ratio,
            "alarms": self.alarms,
            "restarts": self.restarts,
        }


@dataclass(frozen=True, eq=False)
class Part:
    """A stretch at one load and depth: `trace` holds `slots` full drafts a step, enough of them."""

    slots: int
    depth: float
    tokens: int
    trace: Trace
    times: StepTimes

    @property
    def plain_ms(self) -> float:
        """Time in which plain decoding makes the tokens."""
        return self.times.plain * self.tokens / self.slots


def simulate(mixture: Mixture, *, limit_is_free: bool = True) -> Result:
    """Play the whole mixture: the tuner once through, and every triple on the same rounds.

    `limit_is_free` (see `policy_table`) is an action of the tuner under the live policy.
    """
    parts = [_parts(mixture, index) for index in range(len(mixture.phases))]
    random = np.random.default_rng((mixture.seed, 0))
    target, draft = mixture.machine.calibrated(random)
    tuner = Tuner(
        LiveCost(target, DraftCost("autoregressive", draft)),
        SurvivalModel.prior(mixture.n_max),
        limit_is_free=limit_is_free,
    )
    tuned = []
    for phase in parts:
        made, spent = 0, 0.0
        for part in phase:
            tuner, part_made, part_ms = _play(tuner, part, mixture, random)
            made, spent = made + part_made, spent + part_ms
        tuned.append(1000 * made / spent)
    triples = every_triple(mixture.n_max)
    ms = np.array([sum(_static_ms(part, triples) for part in phase) for phase in parts])
    best = int(np.argmin(ms.sum(axis=0)))
    wanted = np.array([phase.tokens for phase in mixture.phases])
    return Result(
        phases=mixture.phases,
        tuned=tuple(tuned),
        static=tuple((1000 * wanted / ms[:, best]).tolist()),
        best_of_phase=tuple((1000 * wanted / ms.min(axis=1)).tolist()),
        plain=tuple(
            1000 * sum(part.tokens for part in phase) / sum(part.plain_ms for part in phase)
            for phase in parts
        ),
        triple=triples[best],
        alarms=tuner.alarms,
        restarts=tuner.restarts,
    )


def _parts(mixture: Mixture, index: int) -> list[Part]:
    phase = mixture.phases[index]
    text = mixture.texts[phase.text]
    parts = []
    for number, (depth, tokens_) in enumerate(phase.segments()):
        random = np.random.default_rng((mixture.seed, 1, index, number))
        steps = -(-tokens_ // phase.slots)
        trace = mixture.draw(text, steps * phase.slots, random)
        times = mixture.machine.step_times(phase.slots, depth, mixture.n_max)
        parts.append(Part(phase.slots, depth, tokens_, trace, times))
    return parts


def _static_ms(part: Part, triples: Sequence[Triple]) -> Floats:
    """Time in which each triple makes the tokens of `part`, at its mean rate over the rounds.

    Neighbours that differ in n_min alone draft alike, and are drafted for once.
    """
    ms = []
    for (n_max, p_min), group in groupby(triples, key=lambda triple: (triple.n_max, triple.p_min)):
        drafted = cut_where(part.trace, part.trace.p < p_min, n_max)
        drafting = part.times.drafting(drafted.paid).sum()
        for triple in group:
            cut = thrown_away(drafted, triple.n_min)
            spent = drafting + part.times.verifying(cut.kept).sum()
            ms.append(float(spent * part.tokens / tokens(part.trace, cut).sum()))
    return np.array(ms)


def _play(
    tuner: Tuner, part: Part, mixture: Mixture, random: np.random.Generator
) -> tuple[Tuner, int, float]:
    """Let `tuner` write `part`, learning block by block; returns tokens made and ms spent."""
    made, spent, row = 0, 0.0, 0
    steps = max(1, BLOCK // part.slots)
    noise = mixture.machine.round_noise
    while made < part.tokens:
        policy = tuner.policy(part.slots, part.depth)
        if tuner.loaded:
            rows = np.arange(row, min(row + steps * part.slots, len(part.trace)))
            row = int(rows[-1]) + 1
            tuner, new, ms = _drafted(tuner, policy, part, part.trace.pick(rows), noise, random)
        else:
            new = min(steps * part.slots, part.tokens - made)
            ms = float(_noisy(np.full(steps, part.times.plain), noise, random).mean())
            ms *= new / part.slots
        made, spent = made + new, spent + ms
        if mixture.restart is not None:
            price = mixture.restart.seconds(plain=tuner.loaded, cached=part.slots * part.depth)
            tuner, restart_s = tuner.spend(ms / 1000, policy, price)
            spent += 1000 * restart_s
    return tuner, made, spent


def _drafted(
    tuner: Tuner,
    policy: Policy,
    part: Part,
    block: Trace,
    noise: float,
    random: np.random.Generator,
) -> tuple[Tuner, int, float]:
    """The rounds of `block` under `policy`, and what they teach: tuner, tokens made, ms spent."""
    cut = cut_vector(block, tuner.belief, policy) if policy.drafts else _probing(block, part)
    drafting = _noisy(part.times.drafting(cut.paid), noise, random)
    verifying = _noisy(part.times.verifying(cut.kept), noise, random)
    seen = _reported(block, cut, np.repeat(drafting, part.slots), np.repeat(verifying, part.slots))
    tuner = tuner.observe(seen, part.slots, part.depth)
    return tuner, int(tokens(block, cut).sum()), float(drafting.sum() + verifying.sum())


def _noisy(times: Floats, noise: float, random: np.random.Generator) -> Floats:
    return times * np.exp(random.normal(0.0, noise, len(times)))


def _probing(block: Trace, part: Part) -> Cut:
    """No drafting, but in one step of `PROBE`."""
    probed = (np.arange(len(block)) // part.slots) % PROBE == 0
    length = np.where(probed, PROBE_LENGTH, 0)
    return Cut(length, length)


def _reported(block: Trace, cut: Cut, drafting: Floats, verifying: Floats) -> list[Round]:
    """The rounds as telemetry tells them: what was sent to the target, and how that went."""
    return [
        Round(
            p=tuple(p[:kept].tolist()),
            accepted=int(min(accepted, kept)),
            draft_ms=float(draft_ms),
            verify_ms=float(verify_ms),
            cut_p=float(p[kept]) if paid > kept else None,
        )
        for p, accepted, kept, paid, draft_ms, verify_ms in zip(
            block.p, block.accepted, cut.kept, cut.paid, drafting, verifying, strict=True
        )
    ]
