"""A rehearsal: the real server drafts for prompts of ours, and its log tells every round.

Counters alone do not say which probability a draft reported before a token was accepted or
not, and that is what `p_min` and thresholds act on. The prompts are generic: what they teach
is a prior for the user's own traffic.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from autospec.engine.arguments import server_argv
from autospec.engine.find import Engine
from autospec.engine.launch import Endpoint, Launch, Speculation
from autospec.engine.round_log import RoundReader
from autospec.engine.server import Server
from autospec.errors import AutospecError
from autospec.tuning.observations import Round

TOKENS = 48
"""Tokens a prompt: short, so that many different prompts are heard.

Each is heard once: a greedy answer repeats itself round by round, and would count twice as
evidence of the same thing.
"""

ENOUGH = 160

_CACHED = "no rehearsal: the engine answered from its prompt cache, which repeats and measures not"


@dataclass(frozen=True)
class Rehearsal:
    """The recorded rounds, the mean depth they ran at in tokens, and what went wrong, if so."""

    rounds: tuple[Round, ...]
    depth: float = 0.0
    remark: str | None = None


async def rehearse(
    engine: Engine,
    launch: Launch,
    speculation: Speculation,
    prompts: Sequence[str],
    env: Mapping[str, str],
    *,
    seconds: float,
    on_round: Callable[[int], None] = lambda _count: None,
) -> Rehearsal:
    """Serve `prompts` for up to `seconds` with `speculation` and record the rounds.

    A server that does not come up, one that takes prompts from a cache all the same, or an
    engine whose log shows no rounds gives a remark and no rounds: calibration goes on without.
    """
    deadline = time.monotonic() + seconds
    reader = RoundReader()
    depths: list[float] = []

    def take(line: str) -> None:
        reader.take(line)
        on_round(len(reader.rounds))

    with tempfile.TemporaryDirectory(prefix="autospec-") as folder:
        endpoint = Endpoint(socket=Path(folder) / "rehearsal.sock")
        argv = [*server_argv(engine, launch, speculation, endpoint), "-lv", "5"]
        try:
            async with await Server.start(argv, env, endpoint, take) as server:
                await server.ready(within=seconds)
                for prompt in dict.fromkeys(prompts):
                    left = deadline - time.monotonic()
                    if left <= 0 or len(reader.rounds) >= ENOUGH:
                        break
                    timings = (await server.chat(prompt, tokens=TOKENS, within=left)).timings
                    if timings.mostly_cached:
                        return Rehearsal((), remark=_CACHED)
                    depths.append(timings.prompt_n + timings.predicted_n / 2)
        except httpx.TimeoutException:
            pass
        except (httpx.HTTPError, AutospecError, OSError) as error:
            return Rehearsal((), remark=f"no rehearsal: {error or type(error).__name__}")
    if not reader.rounds:
        return Rehearsal((), remark="no rehearsal: this engine's log does not show rounds")
    return Rehearsal(tuple(reader.rounds), sum(depths) / len(depths) if depths else 0.0)
