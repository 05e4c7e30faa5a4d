"""What a calibration found, as plain data that is kept in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from autospec.errors import CalibrationError
from autospec.tuning.cost import CostSurface, DraftCost, StepTime
from autospec.tuning.observations import Round

FORMAT = 1


@dataclass(frozen=True)
class Calibration:
    """Costs of one target and its draft on one machine.

    `target` and `draft` are median step times in ms; `rounds` were recorded by the rehearsal
    at about `rehearsal_depth` tokens of context. `skipped` and `remarks` are sentences: what
    the budget left out, and what made the figures doubtful. `unsure` says that the spread or
    other load was too large to build on.
    """

    key: str
    model: str
    made_at: float
    seconds: float
    engine_version: str
    max_draft: int
    target: tuple[StepTime, ...]
    draft: tuple[StepTime, ...] = ()
    rounds: tuple[Round, ...] = ()
    rehearsal_depth: float = 0.0
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    unsure: bool = False

    @property
    def surface(self) -> CostSurface:
        return CostSurface.from_steps(self.target)

    def draft_cost(self, kind: Literal["autoregressive", "none"]) -> DraftCost:
        surface = CostSurface.from_steps(self.draft) if self.draft else None
        return DraftCost(kind if surface else "none", surface)

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """The calibration in `text`. CalibrationError when it is not one of this format."""
        try:
            fields = json.loads(text)
            if fields.pop("format") != FORMAT:
                raise ValueError("another format")
            return cls(
                **{
                    **fields,
                    "target": _steps(fields["target"]),
                    "draft": _steps(fields["draft"]),
                    "rounds": tuple(
                        Round(**{**one, "p": tuple(one["p"])}) for one in fields["rounds"]
                    ),
                    "skipped": tuple(fields["skipped"]),
                    "remarks": tuple(fields["remarks"]),
                }
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CalibrationError(f"not a calibration: {error}") from error


def _steps(rows: list[Mapping[str, Any]]) -> tuple[StepTime, ...]:
    return tuple(StepTime(**row) for row in rows)
