"""The power laws of pull request 14132, against its own printed figures."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.tuning.powerlaw import (
    PowerLaw,
    decode,
    encode,
    fit_power,
    fit_power_with_offset,
    worthless_batches,
)

SEED = json.loads((Path(__file__).parent.parent / "data/seed_curves.json").read_text())["curves"]
ENCODINGS = ["0.53651", "0.82343", "0.65451", "0.64491"]
curves = st.lists(st.floats(0.01, 2.0), min_size=4, max_size=40).map(lambda tail: [1.0, 0.9, *tail])


@pytest.mark.parametrize("curve", SEED, ids=lambda curve: curve["name"][:12])
def test_fits_reproduce_the_recomputed_ones(curve):
    law = fit_power(curve["relative_cost"])
    assert law.skip == curve["skip"]
    assert law.base == curve["power_fit"]["base"]
    assert law.power == pytest.approx(curve["power_fit"]["power"], abs=1e-6)
    assert law.rmse == pytest.approx(curve["power_fit"]["rmse"], abs=1e-6)

    law = fit_power_with_offset(curve["relative_cost"])
    assert law.power == pytest.approx(curve["offset_fit"]["power"], abs=2e-6)
    assert law.offset == pytest.approx(curve["offset_fit"]["offset"], abs=2e-6)
    assert law.rmse == pytest.approx(curve["offset_fit"]["rmse"], abs=1e-6)


@pytest.mark.parametrize(("curve", "p_min"), [*zip(SEED, ENCODINGS, strict=True)])
def test_encodings_are_the_printed_ones(curve, p_min):
    encoding = encode(fit_power(curve["relative_cost"]), n_max=len(curve["relative_cost"]))
    assert encoding.p_min == p_min
    assert encoding.decodable
    assert encoding.n_min == curve["skip"]


@pytest.mark.parametrize(
    ("law", "fault"),
    [
        (PowerLaw(0.5, 0.5, 1, offset=-0.11), "offset -0.1100 is negative"),
        (PowerLaw(0.5, 0.5, 1, offset=0.09), "offset 0.0900 has one digit"),
        (PowerLaw(0.5, 1.0, 1), "power 1.0000 needs 3 digits"),
        (PowerLaw(0.5, 0.996, 1), "power 0.9960 needs 3 digits"),
        (PowerLaw(0.5, -0.2, 1), "power -0.2000 is negative"),
        (PowerLaw(0.04, 0.5, 1), "base 0.0400 has one digit"),
        (PowerLaw(0.5, 0.5, 10), "draft-min 10 needs two digits"),
    ],
)
def test_what_the_digits_cannot_hold_is_named(law, fault):
    encoding = encode(law, 32)
    assert not encoding.decodable
    assert fault in " ".join(encoding.faults)


def test_a_law_with_offset_uses_seven_digits():
    encoding = encode(PowerLaw(0.652, 0.789, 1, offset=0.134), 32)
    assert encoding.p_min == "0.6579131"
    assert decode(encoding.p_min) == PowerLaw(0.65, 0.79, 1, offset=0.13)


@given(
    base=st.integers(10, 99),
    power=st.integers(10, 99),
    skip=st.integers(1, 9),
    offset=st.integers(10, 99) | st.just(0),
)
def test_two_digit_laws_survive_the_packing(base, power, skip, offset):
    law = PowerLaw(base / 100, power / 100, skip, offset / 100)
    encoding = encode(law, 16)
    assert encoding.decodable
    assert decode(encoding.p_min) == law


@pytest.mark.parametrize("text", ["", "0.5", "0.536", "0.536512", "1.53651", "0.5344-111", "nan"])
def test_digits_that_hold_no_law_are_refused(text):
    with pytest.raises(ValueError, match="law"):
        decode(text)


@given(curves)
def test_least_squares_is_least(curve):
    law = fit_power(curve, skip=1)
    y = np.array(curve[1:])
    b = np.arange(1, len(y) + 1)
    for power in np.linspace(-1, 3, 41):
        rmse = float(np.sqrt(np.mean((y[0] * b**-power - y) ** 2)))
        assert law.rmse <= rmse + 1e-9
    with_offset = fit_power_with_offset(curve, skip=1)
    assert with_offset.rmse <= law.rmse + 1e-9
    assert all(math.isfinite(v) for v in (with_offset.power, with_offset.offset, with_offset.rmse))


@given(st.floats(0.1, 1.5), st.integers(4, 40))
def test_an_exact_law_is_found_again(power, length):
    exact = [1.0, *(0.6 * b**-power for b in range(1, length))]
    law = fit_power(exact)
    assert law.power == pytest.approx(power, abs=1e-6)
    assert law.relative_cost(3) == pytest.approx(exact[2])


@pytest.mark.parametrize(
    "curve",
    [[], [1.0], [1.0, math.nan, 0.5], [1.0, -0.5, 0.4], [2.0, 0.5, 0.4], [1.0, math.inf, 0.4]],
)
def test_unusable_curves_are_refused(curve):
    with pytest.raises(ValueError, match="curve"):
        fit_power(curve)


def test_a_curve_that_never_pays_has_nothing_to_fit():
    with pytest.raises(ValueError, match="nothing to fit"):
        worthless_batches([1.0, 1.5, 1.2, 1.1])


def test_a_law_says_nothing_about_the_batches_left_out():
    with pytest.raises(ValueError, match="over 3"):
        PowerLaw(0.8, 0.3, 3).relative_cost(3)
