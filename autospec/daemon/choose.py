"""From costs and acceptance to the setting of one model. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig
from autospec.daemon.retuning.appliers import Applier, Choice, applier
from autospec.daemon.retuning.knowledge import Knowledge
from autospec.daemon.retuning.sources import sources_of
from autospec.daemon.setting import Basis, Setting, Source, Unpinned, plain
from autospec.engine.capabilities import DRAFT_SIMPLE, Capabilities
from autospec.engine.launch import PLAIN, Speculation
from autospec.tuning.cost import RoundCost
from autospec.tuning.plan import Pins, Plan, make_plan
from autospec.tuning.survival import SurvivalModel

USUAL_DEPTH = 1024
"""Context depth in tokens that is planned for until traffic tells, if the context is that long."""

NO_DRAFT = "there is no draft model: plain decoding"

_SHARE_OF_CONTEXT = 4
_NOTHING_PINNED = {"type": "auto", "n_max": None, "n_min": None, "p_min": None, "thresholds": None}
_ENGINE_N_MAX = 3


@dataclass(frozen=True)
class Model:
    """All that a choice is made from: the user's wishes, the costs and what traffic taught.

    `able` are the engine's abilities, None where they do not matter; `added` tells that every
    request passes somebody who adds `Tuner.request_fields`. `live`: the engine can be
    steered while it runs. `taught` is what traffic taught, None before any; `traffic` is the load
    and the depth that are chosen for then.
    """

    config: ModelConfig
    context: int
    calibration: Calibration | None
    able: Capabilities | None = None
    live: bool = False
    taught: Knowledge | None = None
    traffic: Basis | None = None
    added: bool = False

    @property
    def steered(self) -> bool:
        """Whether thresholds can be put in force: pinned scalars leave nothing to steer."""
        return self.live and self.config.n_min is None and self.config.p_min is None

    @property
    def basis(self) -> Basis:
        if self.traffic is not None:
            return self.traffic
        a_slot = self.context // self.config.slots
        return Basis(depth=min(USUAL_DEPTH, a_slot // _SHARE_OF_CONTEXT))

    @property
    def knowledge(self) -> Knowledge:
        """ValueError without a calibration."""
        if self.taught is not None:
            return self.taught
        if self.calibration is None:
            raise ValueError("a prediction needs a calibration")
        return Knowledge.of(self.calibration, self.longest)

    @property
    def longest(self) -> int:
        """The longest draft that is considered."""
        measured = self.calibration.max_draft if self.calibration else 0
        return max(measured, self.config.n_max or 0)

    @property
    def pins(self) -> Pins:
        config = self.config
        return Pins(
            n_max=config.n_max,
            n_min=config.n_min,
            p_min=config.p_min,
            speculate=None if config.type == "auto" else True,
        )

    @property
    def drafted(self) -> bool:
        """Whether there is a draft model."""
        return self.config.draft is not None or self.config.draft_hf is not None

    @property
    def tuned(self) -> bool:
        """Whether there is anything to choose: something to draft from, costs, and the user's
        leave."""
        free = self.config.type == "auto" or self.config.type == (DRAFT_SIMPLE,)  # noqa: PLR1714
        possible = self.drafted or bool(sources_of(self.able, drafted=False))
        return free and possible and self.calibration is not None

    def applier(self) -> Applier:
        """How a choice reaches the engine, made anew."""
        return applier(self.able, live=self.steered, refusal=None, added=self.added)


def choose(model: Model, by: Applier | None = None) -> Setting:
    """The setting to launch `model` with, and why; `by` carries it, by default the best way."""
    return beside_pins(model, _chosen(model, by))


def _chosen(model: Model, by: Applier | None) -> Setting:
    config = model.config
    if config.type == "off":
        return plain('type = "off" in the configuration', "pinned")
    if config.type != "auto" and config.type != (DRAFT_SIMPLE,):  # noqa: PLR1714 - narrows
        return _pinned_type(config, config.type)
    if not model.drafted:
        plan = None if model.calibration is None else without_draft(predict(model))
        return replace(plain(NO_DRAFT, plan=plan), basis=model.basis)
    if model.calibration is None:
        return _uncalibrated(config)
    plan = predict(model)
    if plan.scalar is None or not plan.speculate:
        return replace(plain(plan.reason, plan=plan), basis=model.basis)
    return speculating(model, plan, by or model.applier())


def without_draft(plan: Plan) -> Plan:
    """`plan` where there is no draft model to carry it out."""
    off = replace(plan, speculate=False, scalar=None, rate=plan.plain_rate, unsure=False)
    return replace(off, reason=NO_DRAFT)


def speculating(model: Model, plan: Plan, by: Applier) -> Setting:
    """The setting that carries `plan` by way of `by`, whether or not the plan is to speculate."""
    carried = by.launch(choice_of(model, plan))
    return Setting(
        carried.speculation,
        plan.reason,
        _sources(model.config),
        plan,
        model.basis,
        live=by.name == "live",
        environment=carried.environment,
    )


def beside_pins(model: Model, setting: Setting) -> Setting:
    """`setting` with what would be chosen if the user had pinned nothing."""
    free = model.config.model_copy(update=_NOTHING_PINNED)
    if free == model.config or not model.drafted or model.calibration is None:
        return setting
    unbound = replace(model, config=free)
    plan = predict(unbound)
    speculation, live = PLAIN, False
    if plan.speculate and plan.scalar is not None:
        scalar, live = plan.scalar, unbound.steered
        speculation = Speculation((DRAFT_SIMPLE,), scalar.n_max, scalar.n_min, scalar.p_min)
    rate = setting.plan.rate if setting.plan is not None else None
    if rate is None and not setting.speculation.on:
        rate = plan.plain_rate
    loss = None if rate is None else 1.0 - rate / plan.rate
    return replace(setting, unpinned=Unpinned(speculation, live, plan.rate, loss))


def choice_of(model: Model, plan: Plan) -> Choice:
    """What an applier carries. ValueError for a plan without a triple."""
    if plan.scalar is None:
        raise ValueError("there is nothing to draft")
    longest = model.config.n_max or model.longest
    return Choice(plan.scalar, cost_of(model).truncated(longest), survival_of(model), longest)


def predict(model: Model) -> Plan:
    """The best plan under the pins, at the depth and load of `model.basis`."""
    survival = model.knowledge.survival
    return make_plan(cost_of(model), survival, pins=model.pins, thresholds=model.steered)


def cost_of(model: Model, basis: Basis | None = None) -> RoundCost:
    """Costs of rounds at `basis`, by default the model's own."""
    return model.knowledge.costs.at(basis or model.basis)


def survival_of(model: Model) -> SurvivalModel:
    """Acceptance as the rehearsal saw it, moved to what the user's own traffic shows."""
    return model.knowledge.survival


def _sources(config: ModelConfig) -> dict[str, Source]:
    values = {"n_max": config.n_max, "n_min": config.n_min, "p_min": config.p_min}
    sources: dict[str, Source] = {"type": "auto" if config.type == "auto" else "pinned"}
    for name, value in values.items():
        sources[name] = "auto" if value is None else "pinned"
    return sources


def _pinned_type(config: ModelConfig, types: tuple[str, ...]) -> Setting:
    """A type whose costs nothing measures beforehand: the user's numbers, else the engine's."""
    speculation = Speculation(
        types, config.n_max or _ENGINE_N_MAX, config.n_min or 0, config.p_min or 0.0
    )
    reason = f"type {', '.join(types)} is pinned; it is not tuned before it has been measured"
    return Setting(speculation, reason, _sources(config))


def _uncalibrated(config: ModelConfig) -> Setting:
    if config.n_max is None:
        return plain("nothing was measured yet, and plain decoding is never slower than itself")
    speculation = Speculation((DRAFT_SIMPLE,), config.n_max, config.n_min or 0, config.p_min or 0.0)
    return Setting(speculation, "pinned by the configuration; not measured", _sources(config))
