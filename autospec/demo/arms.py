"""Several servers side by side, asked the same prompts in turn: the only fair comparison.

Each prompt goes to every arm before the next prompt, in an order that is shuffled each time, so
that whatever drifts on the machine drifts for all of them. Speeds are compared per token and
per prompt: each pair of speeds gives one ratio.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autospec.engine.observe import Timings
from autospec.engine.server import Server
from autospec.errors import AutospecError, EngineOutputError

_RESAMPLES = 4000
_WITHIN = 300.0
_FEWEST_TOKENS = 8


@dataclass(frozen=True)
class Answer:
    """One prompt answered by one arm."""

    text: str
    timings: Timings

    @property
    def rate(self) -> float:
        """Generated tokens per second, prompt evaluation left out."""
        rate = self.timings.tokens_per_second
        if not rate:
            raise EngineOutputError("a completion that took no time", line=self.text)
        return rate


@dataclass(frozen=True)
class ArmResult:
    """Median tokens/s over prompts, half the interquartile range, share of drafts accepted."""

    tokens_per_second: float
    spread: float
    acceptance: float | None


@dataclass(frozen=True)
class Ratio:
    """Median of the paired ratios, with a 95 % interval (bootstrap over prompts)."""

    median: float
    low: float
    high: float


async def compare(
    arms: Mapping[str, Server],
    prompts: Sequence[str],
    *,
    tokens: int,
    seed: int,
    on_answer: Callable[[int], None] = lambda _count: None,
) -> dict[str, list[Answer]]:
    """Ask every arm every prompt, interleaved. The answers of each arm, in order of prompts.

    A first round, on the first prompt, only warms up. Prompts that an arm answered with fewer
    than a few tokens say nothing about speed; they are left out for all. AutospecError when an
    answer came mostly from a prompt cache, which no fair comparison may use.
    """
    order = random.Random(seed)  # noqa: S311 - shuffles arms, guards nothing
    answers: dict[str, list[Answer]] = {name: [] for name in arms}
    names = list(arms)
    for index, prompt in enumerate([prompts[0], *prompts]):
        order.shuffle(names)
        row: dict[str, Answer] = {}
        for name in names:
            done = await arms[name].chat(prompt, tokens=tokens, within=_WITHIN)
            if done.timings.mostly_cached:
                raise AutospecError(f"{name} answered from its prompt cache: no measurement")
            row[name] = Answer(done.text, done.timings)
        on_answer(index)
        if index and min(one.timings.predicted_n for one in row.values()) >= _FEWEST_TOKENS:
            for name, answer in row.items():
                answers[name].append(answer)
    return answers


def summary(answers: Sequence[Answer]) -> ArmResult:
    rates = [answer.rate for answer in answers]
    low, _, high = statistics.quantiles(rates, n=4, method="inclusive")
    drafted = sum(answer.timings.drafted or 0 for answer in answers)
    accepted = sum(answer.timings.accepted or 0 for answer in answers)
    return ArmResult(
        statistics.median(rates), (high - low) / 2, accepted / drafted if drafted else None
    )


def paired_ratio(one: Sequence[Answer], other: Sequence[Answer], *, seed: int) -> Ratio:
    """How much faster `one` is than `other` on the same prompts."""
    ratios = [a.rate / b.rate for a, b in zip(one, other, strict=True)]
    chance = random.Random(seed)  # noqa: S311 - a bootstrap
    medians = sorted(
        statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES)
    )
    return Ratio(
        statistics.median(ratios), medians[_RESAMPLES // 40], medians[-_RESAMPLES // 40 - 1]
    )


def diverged(one: Sequence[Answer], other: Sequence[Answer]) -> int:
    """Prompts that were answered differently: a batch of another size rounds differently."""
    return sum(a.text != b.text for a, b in zip(one, other, strict=True))
