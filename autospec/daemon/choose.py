"""From costs and acceptance to the setting of one model. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autospec.calibration.result import Calibration
from autospec.config.schema import ModelConfig
from autospec.daemon.memory import Learned
from autospec.daemon.setting import Basis, Setting, Source, plain
from autospec.engine.capabilities import DRAFT_SIMPLE
from autospec.engine.launch import Speculation
from autospec.tuning.cost import RoundCost, fit_overhead, round_cost
from autospec.tuning.plan import Pins, Plan, Trial, make_plan
from autospec.tuning.survival import SurvivalModel
from autospec.tuning.tilt import tilted

USUAL_DEPTH = 1024
"""Context depth in tokens that is planned for until traffic tells, if the context is that long."""

_SHARE_OF_CONTEXT = 4
_ENGINE_N_MAX = 3


@dataclass(frozen=True)
class Model:
    """All that a choice is made from: the user's wishes, the costs and what traffic taught.

    `trial` is there once a setting proved slower than plain decoding; it outranks predictions.
    `live`: the engine can be steered while it runs (see `steering`). `belief` is what rounds of
    real traffic taught then.
    """

    config: ModelConfig
    context: int
    calibration: Calibration | None
    learned: Learned | None = None
    trial: Trial | None = None
    live: bool = False
    belief: SurvivalModel | None = None

    @property
    def steered(self) -> bool:
        """Whether thresholds can be put in force: pinned scalars leave nothing to steer."""
        return self.live and self.config.n_min is None and self.config.p_min is None

    @property
    def basis(self) -> Basis:
        if self.learned is not None:
            busy = max(1, round(self.learned.busy))
            return Basis(self.learned.depth, busy, self.learned.counters.drafts)
        a_slot = self.context // self.config.slots
        return Basis(depth=min(USUAL_DEPTH, a_slot // _SHARE_OF_CONTEXT))


def choose(model: Model) -> Setting:
    """The setting to launch `model` with, and why."""
    config = model.config
    has_draft = config.draft is not None or config.draft_hf is not None
    if config.type == "off":
        return plain('type = "off" in the configuration', "pinned")
    if config.type != "auto" and config.type != (DRAFT_SIMPLE,):  # noqa: PLR1714 - narrows
        return _pinned_type(config, config.type)
    if not has_draft:
        return plain("there is no draft model: plain decoding")
    if model.calibration is None:
        return _uncalibrated(config)
    plan = predict(model)
    if plan.scalar is None or not plan.speculate:
        return replace(plain(plan.reason, plan=plan), basis=model.basis)
    scalar, steered = plan.scalar, model.steered and plan.policy.n_max > 0
    speculation = Speculation((DRAFT_SIMPLE,), scalar.n_max, scalar.n_min, scalar.p_min)
    if steered:
        speculation = Speculation((DRAFT_SIMPLE,), plan.policy.n_max)
    return Setting(speculation, plan.reason, _sources(config), plan, model.basis, live=steered)


def predict(model: Model) -> Plan:
    """The best plan under the pins, at the depth and load of `model.basis`."""
    config = model.config
    pins = Pins(
        n_max=config.n_max,
        n_min=config.n_min,
        p_min=config.p_min,
        speculate=None if config.type == "auto" else True,
    )
    trial = model.trial if pins.speculate is None else None
    return make_plan(
        cost_of(model), survival_of(model), pins=pins, trial=trial, thresholds=model.steered
    )


def cost_of(model: Model, basis: Basis | None = None) -> RoundCost:
    """Costs of rounds at `basis`, by default the model's own.

    The rehearsal's rounds tell what they cost beyond the benchmark's steps.
    """
    calibration, basis = _needed(model), basis or model.basis
    target, draft = calibration.surface, calibration.draft_cost("autoregressive")
    overhead = fit_overhead(calibration.rounds, target, draft, calibration.rehearsal_depth)
    longest = max(calibration.max_draft, model.config.n_max or 0)
    return round_cost(
        target,
        draft,
        n_max=longest,
        depth=basis.depth,
        slots=basis.busy,
        overhead=overhead,
    )


def survival_of(model: Model) -> SurvivalModel:
    """Acceptance as the rehearsal saw it, moved to what the user's own traffic shows."""
    if model.belief is not None:
        return model.belief
    calibration = _needed(model)
    longest = max(calibration.max_draft, model.config.n_max or 0)
    survival = SurvivalModel.from_rounds(calibration.rounds, longest)
    if (learned := model.learned) is None:
        return survival
    return tilted(
        survival,
        learned.counters,
        n_max=learned.n_max,
        n_min=learned.n_min,
        p_min=learned.p_min,
    )


def _needed(model: Model) -> Calibration:
    if model.calibration is None:
        raise ValueError("a prediction needs a calibration")
    return model.calibration


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
