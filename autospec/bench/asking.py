"""Several servers side by side, asked the same in turn: the only fair comparison.

Each prompt goes to every arm before the next prompt, in an order that is shuffled each time, so
that whatever drifts on the machine drifts for all of them. Speeds are compared per token and
per prompt: each pair of speeds gives one ratio.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autospec.bench.stats import Interval, typical_ratio
from autospec.engine.observe import Timings
from autospec.engine.server import Message, Server
from autospec.errors import AutospecError, EngineOutputError

WITHIN = 600.0
"""Seconds after which an answer is given up."""

FEWEST_TOKENS = 8
"""An answer of fewer tokens says nothing about speed."""


@dataclass(frozen=True)
class Answer:
    """One prompt answered by one arm."""

    text: str
    timings: Timings

    @property
    def ms(self) -> float:
        """Milliseconds a generated token, prompt evaluation left out."""
        return 1000 / self.rate

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


async def ask(name: str, server: Server, prompt: str | Sequence[Message], tokens: int) -> Answer:
    """The greedy answer of the arm `name`.

    AutospecError when it came mostly from a prompt cache, which no fair comparison may use.
    """
    done = await server.chat(prompt, tokens=tokens, within=WITHIN)
    if done.timings.mostly_cached:
        raise AutospecError(f"{name} answered from its prompt cache: no measurement")
    return Answer(done.text, done.timings)


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
    than a few tokens say nothing about speed; they are left out for all.
    """
    order = random.Random(seed)  # noqa: S311 - shuffles arms, guards nothing
    answers: dict[str, list[Answer]] = {name: [] for name in arms}
    names = list(arms)
    for index, prompt in enumerate([prompts[0], *prompts]):
        order.shuffle(names)
        row = {name: await ask(name, arms[name], prompt, tokens) for name in names}
        on_answer(index)
        if index and min(one.timings.predicted_n for one in row.values()) >= FEWEST_TOKENS:
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


def paired_ratio(one: Sequence[Answer], other: Sequence[Answer], *, seed: int) -> Interval:
    """How much faster `one` is than `other` on the same prompts."""
    return typical_ratio([a.ms for a in one], [b.ms for b in other], seed=seed)


def diverged(one: Sequence[Answer], other: Sequence[Answer]) -> int:
    """Prompts that were answered differently: a batch of another size rounds differently."""
    return sum(a.text != b.text for a, b in zip(one, other, strict=True))
