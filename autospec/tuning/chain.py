"""Survival as a Markov chain: which cumulative survivals a draft passes through.

Level i holds the values that `s_i = q_1·…·q_i` can take; `moves[i]` says with what chance level
i−1 goes to each of them once the draft has reported its p for token i. As long as there are few
products they are kept as they are, and the chain is exact. Beyond `EXACT` values a product is
shared between its two neighbours on a geometric lattice so that its mean is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autospec.tuning.survival import SurvivalModel

    Floats = NDArray[np.float64]

EXACT = 512
LATTICE = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 127)])


@dataclass(frozen=True, eq=False)
class Chain:
    """`values[i]` (n_i,) ascending, `moves[i]` (n_{i−1}, n_i) with rows that sum to 1.

    Level 0 is the single value 1 and has no move: `moves[0]` leads from level 0 to level 1,
    whose values are `values[1]`. From level 1 on every level contains 0 and 1, reached or not,
    so that a threshold can be found anywhere between them.
    """

    values: tuple[Floats, ...]
    moves: tuple[Floats, ...]

    @classmethod
    def of(cls, survival: SurvivalModel, exact: int = EXACT) -> Chain:
        """The chain of a belief about acceptance, for all its positions."""
        values = [np.ones(1)]
        moves = []
        for q, weight in zip(survival.q, survival.weight, strict=True):
            products = np.outer(values[-1], q)
            distinct = np.union1d(products.ravel(), [0.0, 1.0])
            if len(distinct) <= exact:
                where, share = np.searchsorted(distinct, products), np.zeros_like(products)
            else:
                distinct = LATTICE
                where, share = _split(products)
            values.append(distinct)
            moves.append(_matrix(where, share, weight, len(distinct)))
        return cls(tuple(values), tuple(moves))


def _split(products: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Index of the lattice point at or below each product, and the share of the next one up."""
    below = np.clip(np.searchsorted(LATTICE, products, side="right") - 1, 0, len(LATTICE) - 2)
    share = (products - LATTICE[below]) / (LATTICE[below + 1] - LATTICE[below])
    return below, share


def _matrix(where: NDArray[np.intp], share: Floats, weight: Floats, columns: int) -> Floats:
    rows = np.repeat(np.arange(len(where)), where.shape[1]) * columns
    size = len(where) * columns
    low = np.bincount(rows + where.ravel(), (weight * (1.0 - share)).ravel(), minlength=size)
    above = np.minimum(where + 1, columns - 1)
    high = np.bincount(rows + above.ravel(), (weight * share).ravel(), minlength=size)
    return np.asarray((low + high).reshape(len(where), columns), dtype=np.float64)
