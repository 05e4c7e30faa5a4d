"""Cumulative products as a chain: exact while they are few, true to the mean beyond."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.tuning.chain import LATTICE, Chain

FACTORS = np.tile(np.linspace(0.05, 0.99, 12), (8, 1))
WEIGHTS = np.full((8, 12), 1 / 12)


def mean_of(chain, level):
    mass = np.ones(1)
    for moves in chain.moves[:level]:
        mass = mass @ moves
    return float(mass @ chain.values[level])


def test_few_products_are_kept_as_they_are():
    chain = Chain.of(np.array([[0.5, 0.8], [0.5, 0.8]]), np.full((2, 2), 0.5))
    assert chain.values[1] == pytest.approx([0, 0.5, 0.8, 1])
    assert set(np.round([0.25, 0.4, 0.64], 12)) <= set(np.round(chain.values[2], 12))
    after_half = chain.moves[1][1]
    assert dict(zip(chain.values[2][after_half > 0], after_half[after_half > 0], strict=True)) == (
        pytest.approx({0.25: 0.5, 0.4: 0.5})
    )


@pytest.mark.parametrize("exact", [4, 200])
def test_chances_sum_to_one_and_means_are_kept_on_the_lattice_too(exact):
    chain = Chain.of(FACTORS, WEIGHTS, exact=exact)
    for level, moves in enumerate(chain.moves):
        assert moves.sum(axis=1) == pytest.approx(np.ones(len(moves)))
        assert mean_of(chain, level + 1) == pytest.approx(FACTORS[0].mean() ** (level + 1))


def test_the_lattice_bounds_the_size_of_every_level():
    chain = Chain.of(FACTORS, WEIGHTS, exact=50)
    assert max(map(len, chain.values)) == len(LATTICE)
    assert [moves.shape for moves in chain.moves[2:]] == [(len(LATTICE), len(LATTICE))] * 6


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6),
    st.integers(2, 40),
)
def test_any_factors_give_chances(factors, exact):
    table = np.array(factors)
    chain = Chain.of(table, np.full(table.shape, 1 / 3), exact=exact)
    for moves, values in zip(chain.moves, chain.values[1:], strict=True):
        assert np.all(moves >= 0)
        assert moves.sum(axis=1) == pytest.approx(np.ones(len(moves)))
        assert np.all(np.diff(values) > 0)
        assert (values[0], values[-1]) == (0.0, 1.0)
