"""Cumulative products as a Markov chain: which survivals a draft passes through.

Level i holds the values that `s_i = q_1·…·q_i` can take, and a matrix says with what chance each
value of level i−1 goes to each of them once the draft has reported its p for token i. As long as
there are few products they are kept as they are, and the chain is exact. Beyond `EXACT` values a
product is shared between its two neighbours on a geometric lattice so that its mean is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

EXACT = 512
LATTICE = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 127)])


@dataclass(frozen=True, eq=False)
class Chain:
    """`values[i]` (n_i,) ascending; `moves[i]` (n_i, n_{i+1}) leads from level i to level i+1.

    The rows of a move sum to what the weights do: 1, if they are chances. Level 0 is the single
    value 1. From level 1 on every level contains 0 and 1, reached or not,
    so that a threshold can be found anywhere between them.
    """

    values: tuple[Floats, ...]
    moves: tuple[Floats, ...]

    @classmethod
    def of(cls, factors: Floats, weights: Floats, *, exact: int = EXACT) -> Chain:
        """The chain of products of `factors` (K, M), drawn with `weights` (K, M)."""
        values = [np.ones(1)]
        moves = []
        for factor, weight in zip(factors, weights, strict=True):
            products = np.outer(values[-1], factor)
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
