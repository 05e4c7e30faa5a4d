"""How a choice reaches the engine: four ways behind one interface.

    live            thresholds inside the running engine (see `autospec.engine.live`)
    cost-vector     GGML_BATCH_COSTS in the environment (llama.cpp pull request 17034)
    request-fields  `speculative.n_max` and so on in every request, which the front door adds
    scalar          flags at start

The first two carry a threshold for each position, the others three numbers; the first and the
third change without a restart. No build with the second or third was at hand: what they launch is
tested, their effect in an engine is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from autospec.engine.capabilities import DRAFT_SIMPLE, Capabilities
from autospec.engine.launch import Speculation
from autospec.engine.live.memory import POSITIONS
from autospec.tuning.costvector import cost_vector

if TYPE_CHECKING:
    from autospec.engine.live.applier import LiveSession
    from autospec.engine.live.policy import LivePolicy
    from autospec.tuning.cost import RoundCost
    from autospec.tuning.projection import Scalar
    from autospec.tuning.survival import SurvivalModel

Name = Literal["live", "cost-vector", "request-fields", "scalar"]

VARIABLE = "GGML_BATCH_COSTS"


@dataclass(frozen=True)
class Choice:
    """What an applier has to carry: the best triple, and what the best vector is made from.

    `table` holds the thresholds for every load and depth, where they were solved.
    """

    scalar: Scalar
    cost: RoundCost
    survival: SurvivalModel
    longest: int
    table: LivePolicy | None = None


@dataclass(frozen=True)
class Carried:
    """What a child is launched with: its speculation, and additions to its environment."""

    speculation: Speculation
    environment: Mapping[str, str] = field(default_factory=dict)


class Applier(Protocol):
    """`needs_restart`: another choice comes into force only in a new child."""

    name: Name
    why: str
    needs_restart: bool

    def launch(self, choice: Choice) -> Carried:
        """The child for `choice`."""

    def put(self, choice: Choice) -> bool:
        """Put `choice` in force in the child that runs; False where that takes another child."""


@dataclass
class Flags:
    why: str
    name: Name = "scalar"
    needs_restart: bool = True

    def launch(self, choice: Choice) -> Carried:
        scalar = choice.scalar
        return Carried(Speculation((DRAFT_SIMPLE,), scalar.n_max, scalar.n_min, scalar.p_min))

    def put(self, choice: Choice) -> bool:
        return False


@dataclass
class Environment:
    """The best thresholds on the product of what the draft reports (see `costvector`)."""

    why: str
    name: Name = "cost-vector"
    needs_restart: bool = True

    def launch(self, choice: Choice) -> Carried:
        vector = cost_vector(choice.cost, choice.survival)
        speculation = Speculation((DRAFT_SIMPLE,), choice.cost.n_max)
        return Carried(speculation, MappingProxyType({VARIABLE: vector.environment}))

    def put(self, choice: Choice) -> bool:
        return False


@dataclass
class RequestFields:
    """The child is launched with room for the longest draft; `fields` narrow each request."""

    why: str
    name: Name = "request-fields"
    needs_restart: bool = False
    fields: Mapping[str, float] | None = None

    def launch(self, choice: Choice) -> Carried:
        self.put(choice)
        return Carried(Speculation((DRAFT_SIMPLE,), choice.longest))

    def put(self, choice: Choice) -> bool:
        scalar = choice.scalar
        self.fields = MappingProxyType(
            {
                "speculative.n_max": scalar.n_max,
                "speculative.n_min": scalar.n_min,
                "speculative.p_min": scalar.p_min,
            }
        )
        return True


@dataclass
class Live:
    """`session` belongs to the child that runs now, if one does."""

    why: str
    name: Name = "live"
    needs_restart: bool = False
    session: LiveSession | None = field(default=None, repr=False)

    def launch(self, choice: Choice) -> Carried:
        return Carried(Speculation((DRAFT_SIMPLE,), min(choice.longest, POSITIONS)))

    def put(self, choice: Choice) -> bool:
        if self.session is None or choice.table is None:
            return False
        self.session.put(choice.table)
        return True


def applier(
    able: Capabilities | None, *, live: bool, refusal: str | None, added: bool = False
) -> Applier:
    """The best way that is there for a build of these abilities; None: nothing is known of it.

    `live`: the configuration asks for the live policy; `refusal` says why it cannot be had.
    `added`: every request passes somebody who adds the fields of `RequestFields` to it.
    """
    if live and refusal is None:
        return Live(
            "thresholds steer drafts inside the running engine; each start proves that it works"
        )
    why = f"the live policy cannot be used: {refusal}" if live else "the live policy is off"
    if able is not None and able.cost_vector:
        return Environment(
            f"this build reads a vector of thresholds at start ({VARIABLE}), and another one takes "
            f"a restart; {why}"
        )
    if added and able is not None and able.request_fields:
        return RequestFields(
            "this build takes settings in each request, which autospec adds at its front door; "
            f"{why}"
        )
    also = (
        "settings in requests, which this build takes, are not added by anybody"
        if able is not None and able.request_fields
        else f"this build reads no cost vector ({VARIABLE}) and no settings in requests"
    )
    return Flags(f"settings are flags at start, and change by a restart; {why}; {also}")
