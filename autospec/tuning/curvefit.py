"""All that `autospec fit` finds out about one cost curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autospec.tuning.oldrules import Verdict, verdicts
from autospec.tuning.powerlaw import (
    Encoding,
    PowerLaw,
    check_curve,
    decode,
    encode,
    fit_power,
    fit_power_with_offset,
)


@dataclass(frozen=True)
class LawFit:
    """One law and the flags that pull request 14132 would be given for it."""

    law: PowerLaw
    encoding: Encoding


@dataclass(frozen=True)
class CurveFit:
    """One curve: its laws (None, with the reason in `notes`, where it has none), and the rules."""

    name: str
    relative_cost: tuple[float, ...]
    power: LawFit | None
    with_offset: LawFit | None
    verdicts: tuple[Verdict, ...]
    draft_cost: float
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, none of them NaN."""
        return {
            "name": self.name,
            "relative_cost": list(self.relative_cost),
            "power_fit": _law_json(self.power),
            "offset_fit": _law_json(self.with_offset),
            "draft_cost": self.draft_cost,
            "rules": [
                {
                    "acceptance": verdict.acceptance,
                    "pr14132": asdict(verdict.law) if verdict.law else None,
                    "pr17034": asdict(verdict.average),
                    "optimal": asdict(verdict.optimal),
                    "old_rule_loses": verdict.loss,
                }
                for verdict in self.verdicts
            ],
            "notes": list(self.notes),
        }


def examine(
    name: str,
    relative_cost: Sequence[float],
    *,
    skip: int | None = None,
    draft_cost: float = 0.0,
    notes: Sequence[str] = (),
) -> CurveFit:
    """Fit both laws to the curve, pack them, and let the rules meet on it.

    The rule of pull request 14132 follows the law without offset, in the two digits that its
    engine reads where they can hold it. ValueError for a curve that is unusable itself.
    """
    check_curve(relative_cost)
    found = list(notes)
    n_max = len(relative_cost)

    def attempt(fit: Callable[[Sequence[float], int | None], PowerLaw], what: str) -> LawFit | None:
        try:
            law = fit(relative_cost, skip)
        except ValueError as reason:
            found.append(f"{what}: {reason}")
            return None
        encoding = encode(law, n_max)
        found.extend(
            f"{what}: {encoding.p_min} cannot be decoded, {fault}" for fault in encoding.faults
        )
        return LawFit(law, encoding)

    power = attempt(fit_power, "power law")
    with_offset = attempt(fit_power_with_offset, "power law with offset")
    followed = None
    if power is not None:
        followed = decode(power.encoding.p_min) if power.encoding.decodable else power.law
    return CurveFit(
        name=name,
        relative_cost=tuple(relative_cost),
        power=power,
        with_offset=with_offset,
        verdicts=tuple(verdicts(relative_cost, followed, draft_cost=draft_cost)),
        draft_cost=draft_cost,
        notes=tuple(found),
    )


def _law_json(fit: LawFit | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        "base": fit.law.base,
        "power": fit.law.power,
        "offset": fit.law.offset,
        "skip": fit.law.skip,
        "rmse": fit.law.rmse,
        "draft_min": fit.encoding.n_min,
        "draft_max": fit.encoding.n_max,
        "draft_p_min": fit.encoding.p_min,
        "decodable": fit.encoding.decodable,
        "faults": list(fit.encoding.faults),
    }
