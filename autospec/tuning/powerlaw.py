"""The power laws of llama.cpp pull request 14132, and how it packs them into one number.

A *relative cost curve* is `y[i] = (T(i+1) / (i+1)) / T(1)`: what one token costs in a batch of
i+1 tokens, in units of plain decoding. The pull request describes it by

    y(b) = (base − offset)·(b − skip)^(−power) + offset,        b = skip+1, skip+2, …

where `skip` batches are left out at the start (they are never worth drafting for), `base` is the
measured `y(skip+1)` itself and only `power` (and `offset`, 0 in the plain form) are fitted, by
least squares. Its engine reads the law from the digits of `--draft-p-min`,

    0.{base}{power}{skip}    or    0.{base}{power}{offset}{skip}

two digits a field (hundredths), one for skip, which must equal `--draft-min`. What does not fit
two digits moves every digit after it, and the engine then drafts by another law than the one
that was fitted. Source: https://github.com/ggml-org/llama.cpp/pull/14132, description; checked
against the three encodings printed there.

The law's weakness is not the packing: real curves step at kernel switches, and a rule that
compares survival with the *average* cost is not optimal (see `autospec.tuning.oldrules`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_POWERS = np.linspace(-2.0, 6.0, 161)


@dataclass(frozen=True)
class PowerLaw:
    """`y(b) = (base − offset)·(b − skip)^(−power) + offset`; `rmse` over the fitted points."""

    base: float
    power: float
    skip: int
    offset: float = 0.0
    rmse: float = 0.0

    def relative_cost(self, batch: int) -> float:
        """Cost of a token in a batch of `batch` > skip tokens, in units of plain decoding."""
        if batch <= self.skip:
            raise ValueError(f"the law holds for batches over {self.skip}, not for {batch}")
        return float((self.base - self.offset) * (batch - self.skip) ** -self.power + self.offset)


@dataclass(frozen=True)
class Encoding:
    """The flags that the pull request suggests for a law.

    `p_min` is the digits as the pull request's script would print them; `faults` says which of
    them the engine would read as something else (empty: it reads the law, rounded).
    """

    n_min: int
    n_max: int
    p_min: str
    faults: tuple[str, ...] = ()

    @property
    def decodable(self) -> bool:
        return not self.faults


def check_curve(relative_cost: Sequence[float]) -> NDArray[np.float64]:
    """The curve as an array; ValueError unless it is a usable one.

    Usable: two entries or more, each finite and positive, the first one 1 (within 1e-6).
    """
    y = np.asarray(relative_cost, dtype=np.float64)
    if y.ndim != 1 or y.size < 2:
        raise ValueError("a cost curve needs at least two entries")
    if not np.all(np.isfinite(y)) or np.any(y <= 0):
        raise ValueError("a cost curve holds only positive, finite numbers")
    if abs(y[0] - 1) > 1e-6:
        raise ValueError("a cost curve is relative to plain decoding: its first entry is 1")
    return y


def worthless_batches(relative_cost: Sequence[float]) -> int:
    """How many batches at the start the pull request leaves out: those up to the last before
    the first (after the single token) whose tokens are cheaper than plain decoding's."""
    y = check_curve(relative_cost)
    cheaper = np.flatnonzero(y < 1)
    if cheaper.size == 0:
        raise ValueError("no batch is cheaper per token than plain decoding: nothing to fit")
    return int(cheaper[0])


def fit_power(relative_cost: Sequence[float], skip: int | None = None) -> PowerLaw:
    """The law without offset, least squares in `power` over the batches after `skip`."""
    y, skip = _tail(relative_cost, skip)
    return _fit(y, skip, lambda _: 0.0)


def fit_power_with_offset(relative_cost: Sequence[float], skip: int | None = None) -> PowerLaw:
    """The law with offset, least squares in `power` and `offset`.

    For a given power the best offset is linear least squares, so only the power is searched
    for. Needs at least three batches after `skip`.
    """
    y, skip = _tail(relative_cost, skip)
    if y.size < 3:
        raise ValueError("a fit with offset needs three batches or more")
    b = np.arange(1, y.size + 1, dtype=np.float64)

    def best_offset(power: float) -> float:
        falling = b**-power
        weight = 1 - falling
        norm = float(weight @ weight)
        return float(weight @ (y - y[0] * falling)) / norm if norm > 1e-18 else 0.0

    return _fit(y, skip, best_offset)


def encode(law: PowerLaw, n_max: int) -> Encoding:
    """Pack `law` as the pull request does, and find out whether its engine can unpack it."""
    with_offset = law.offset != 0.0
    fields = [("base", law.base), ("power", law.power)]
    if with_offset:
        fields.append(("offset", law.offset))
    digits, faults = "", []
    for name, value in fields:
        text = str(round(100 * value))
        if value < 0:
            faults.append(f"the {name} {value:.4f} is negative: a sign has no digit")
        elif len(text) > 2:
            faults.append(f"the {name} {value:.4f} needs {len(text)} digits where two are read")
        elif len(text) < 2:
            faults.append(f"the {name} {value:.4f} has one digit where two are read")
        digits += text
    if law.skip > 9:
        faults.append(f"draft-min {law.skip} needs two digits where one is read")
    return Encoding(law.skip, n_max, f"0.{digits}{law.skip}", tuple(faults))


def decode(p_min: str) -> PowerLaw:
    """The law that the digits of a `--draft-p-min` of the pull request stand for.

    Five digits after the point: without offset; seven: with it. ValueError for anything else.
    """
    whole, point, digits = p_min.partition(".")
    if whole != "0" or not point or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"no packed power law: {p_min!r}")
    if len(digits) not in {5, 7}:
        raise ValueError(f"a packed power law has five or seven digits, not {len(digits)}")
    base, power = int(digits[0:2]) / 100, int(digits[2:4]) / 100
    offset = int(digits[4:6]) / 100 if len(digits) == 7 else 0.0
    return PowerLaw(base, power, int(digits[-1]), offset)


def _tail(relative_cost: Sequence[float], skip: int | None) -> tuple[NDArray[np.float64], int]:
    y = check_curve(relative_cost)
    if skip is None:
        skip = worthless_batches(relative_cost)
    if skip < 1:
        raise ValueError("at least the single token is left out of a fit")
    if y.size - skip < 2:
        raise ValueError(f"a fit needs two batches after the {skip} that are left out")
    return y[skip:], skip


def _fit(y: NDArray[np.float64], skip: int, best_offset: Callable[[float], float]) -> PowerLaw:
    """The least-squares power: a grid finds the valley, least squares its bottom."""
    # Only the old rules need it: a daemon does without its 20 MB.
    from scipy.optimize import least_squares  # noqa: PLC0415

    b = np.arange(1, y.size + 1, dtype=np.float64)

    def residual(x: NDArray[np.float64]) -> NDArray[np.float64]:
        power = float(x[0])
        offset = best_offset(power)
        return np.asarray((y[0] - offset) * b**-power + offset - y)

    def squares(x: NDArray[np.float64]) -> float:
        return float(np.sum(residual(x) ** 2))

    valley = int(np.argmin([squares(power) for power in _POWERS[:, np.newaxis]]))
    low, high = _POWERS[max(valley - 1, 0)], _POWERS[min(valley + 1, _POWERS.size - 1)]
    found = least_squares(
        residual,
        x0=[(low + high) / 2],
        bounds=(low, high),
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
    )
    power = float(found.x[0])
    return PowerLaw(
        base=float(y[0]),
        power=power,
        skip=skip,
        offset=best_offset(power),
        rmse=float(np.sqrt(squares(found.x) / y.size)),
    )
