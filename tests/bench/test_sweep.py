"""The race for the best triple: it finds it, spends little, and ends when time is up."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from autospec.bench.sweep import RUNGS, Race, grid, race, survivors
from autospec.tuning.replay import Triple

TRIPLES = grid((1, 2, 4, 8), (0.0, 0.4, 0.75))


def cost(triple: Triple, cell: str) -> float:
    """Milliseconds a token, best at another triple in every cell."""
    best = {"code": (8, 0.0), "prose": (2, 0.75)}.get(cell, (4, 0.4))
    penalty = 0.5 if triple.n_min else 0.0
    return 10 + abs(triple.n_max - best[0]) + 5 * abs(triple.p_min - best[1]) + penalty


class Played:
    """Plays triples at a known cost, and counts."""

    def __init__(self, noise: float = 0.0, *, until: int = 10**9) -> None:
        self.noise = noise
        self.asked: list[tuple[Triple, str, int]] = []
        self.until = until

    async def __call__(self, triple: Triple, cell: str, row: int) -> float | None:
        self.asked.append((triple, cell, row))
        luck = random.Random(f"{triple} {cell} {row}").gauss(0, self.noise)
        return cost(triple, cell) + luck

    @property
    def is_over(self) -> bool:
        return len(self.asked) >= self.until


def run(played: Played) -> Race:
    return asyncio.run(
        race(
            played,
            TRIPLES,
            ["code", "prose"],
            ["mixture/slots=2"],
            seed=1,
            time_is_up=lambda: played.is_over,
        )
    )


def test_every_cell_finds_its_own_best() -> None:
    played = Played(noise=0.2)
    found = run(played)
    assert found.complete
    assert found.winner("code") == Triple(8, 0, 0.0)
    assert found.winner("prose") == Triple(2, 0, 0.75)
    later = found.winner("mixture/slots=2")
    assert later is not None
    assert later in {one for one, _, _ in played.asked}
    exhaustive = len(TRIPLES) * 5 * 3 * sum(RUNGS)
    assert len(played.asked) < exhaustive / 5


def test_nothing_is_asked_twice() -> None:
    played = Played()
    run(played)
    assert len(played.asked) == len(set(played.asked))


@given(st.integers(1, 80))
def test_when_time_is_up_what_is_known_decides(until: int) -> None:
    played = Played(until=until)
    found = run(played)
    assert len(played.asked) <= until or found.complete
    winners = [found.winner(cell) for cell in ("code", "prose")]
    assert any(winner is not None for winner in winners)
    assert found.winner("unheard of") is None


def test_a_single_triple_wins() -> None:
    played = Played()
    alone = race(played, TRIPLES[:1], ["code"], [], seed=1, time_is_up=lambda: False)
    assert asyncio.run(alone).winner("code") == TRIPLES[0]


def test_rows_without_a_telling_answer_do_not_decide() -> None:
    a, b, c = TRIPLES[:3]
    times: dict[Triple, list[float | None]] = {a: [1.0, 9.0], b: [None, 2.0], c: [0.5, 8.0]}
    assert survivors(times, [a, b, c]) == {b}
    assert survivors({a: [None], b: [None]}, [a, b]) == {a, b}
