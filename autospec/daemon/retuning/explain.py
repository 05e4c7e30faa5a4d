"""Why a model runs as it does: the document behind `autospec explain`. Plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from autospec.daemon.choose import Model
from autospec.daemon.retuning.advisor import Advisor, Record
from autospec.daemon.retuning.decide import Option
from autospec.daemon.retuning.exploring import Budget
from autospec.daemon.retuning.gate import Gate
from autospec.daemon.retuning.options import Outlook
from autospec.daemon.setting import Basis, Setting
from autospec.tuning.shared import best_policy

Json = dict[str, Any]


def explain(
    name: str,
    model: Model,
    setting: Setting,
    advisor: Advisor | None,
    *,
    not_live: str | None = None,
    budget: Budget | None = None,
    before: Sequence[Json] = (),
) -> Json:
    """All of it; the arithmetic takes some tens of milliseconds.

    `advisor` None: nothing can be weighed (no draft, no calibration, or another type is pinned).
    `before` are decisions of earlier lives of the daemon, the newest first.
    """
    document: Json = {
        "model": name,
        "setting": _setting(setting),
        "not_live": not_live,
        "applier": {"name": "scalar", "why": "nothing is chosen for this model", "loss": None},
        "weighed": advisor is not None,
    }
    if advisor is None:
        return document | {"why_not": _why_not(model)}
    mixture = advisor.moments.mixture() or ((advisor.current().basis, 1.0),)
    outlook = Outlook.of(advisor.knowledge, mixture)
    options = advisor.weigh(outlook, setting)
    return document | {
        "applier": {
            "name": advisor.by.name,
            "why": advisor.by.why,
            "loss": _loss(outlook, advisor),
        },
        "present": {
            "seen": bool(advisor.moments.mixture()),
            "working": advisor.moments.working,
            "mixture": [
                {"busy": basis.busy, "depth": basis.depth, "share": share}
                for basis, share in mixture
            ],
        },
        "options": [_option(option) for option in options],
        "curve": _curve(outlook, mixture[0][0]),
        "measured": _measured(advisor.against_plain, advisor.against_prediction),
        "learned": {
            "steps": advisor.knowledge.costs.live.observed,
            "prediction_error": advisor.knowledge.costs.live.prediction_error,
            "rounds": advisor.knowledge.survival.observed,
            "epoch": advisor.knowledge.epoch,
            "plain": advisor.knowledge.costs.plain.factor,
        },
        "explored": None if budget is None else asdict(budget),
        "trials": [
            {"option": option, "where": str(regime), **asdict(trial)}
            for (option, regime), trial in advisor.trials.failed.items()
        ],
        "decisions": [record_json(record) for record in reversed(advisor.decisions)] + list(before),
    }


def _why_not(model: Model) -> str:
    config = model.config
    if config.type == "off":
        return "speculation is off by the configuration"
    if config.draft is None and config.draft_hf is None:
        return "there is no draft model, so there is nothing to choose"
    if model.calibration is None:
        return "nothing was measured yet: `autospec calibrate` measures"
    return f"type {', '.join(config.type)} is pinned, and its costs are not known"


def _setting(setting: Setting) -> Json:
    speculation = setting.speculation
    return {
        "type": ",".join(speculation.types) or "off",
        "n_max": speculation.n_max,
        "n_min": speculation.n_min,
        "p_min": speculation.p_min,
        "live": setting.live,
        "why": setting.reason,
        "sources": dict(setting.sources),
        "unpinned": setting.unpinned.to_json() if setting.unpinned else None,
    }


def _loss(outlook: Outlook, advisor: Advisor) -> float | None:
    """Share of the full vector's rate that the way of this engine gives up, by prediction."""
    if advisor.by.name == "live":
        return 0.0
    longest = advisor.model.config.n_max or advisor.model.longest
    vector = outlook.vector(longest).value
    return max(0.0, 1.0 - advisor.candidate(outlook)[1].value / vector)


def _option(option: Option) -> Json:
    rate = option.rate
    value, worse, better = rate.worlds
    return {
        "name": option.name,
        "how": option.how,
        "rate": value,
        "worse": worse,
        "better": better,
        "measured": rate.measured,
    }


def _curve(outlook: Outlook, basis: Basis) -> Json:
    """Costs and thresholds for drafts of 0…K tokens at one load and depth; ms of a round."""
    cost = outlook.knowledge.costs.at(basis)
    policy = best_policy(cost, outlook.survival)
    survival = np.concatenate([[1.0], outlook.survival.survival()])
    rows = []
    for k in range(cost.n_max + 1):
        threshold = policy.thresholds[k - 1] if k else 0.0
        rows.append(
            {
                "drafted": k,
                "draft_ms": float(cost.draft_ms[k]),
                "verify_ms": float(cost.verify_ms[k]),
                "round_ms": float(cost.draft_ms[k] + cost.verify_ms[k]),
                "spread_ms": float(cost.spread_ms[k]),
                "survival": float(survival[k]),
                "threshold": threshold if math.isfinite(threshold) else None,
            }
        )
    return {
        "busy": basis.busy,
        "depth": basis.depth,
        "plain_ms": cost.plain_ms,
        "limit": policy.limit,
        "mean_drafted": policy.mean_drafted,
        "extrapolated": cost.extrapolated,
        "rows": rows,
    }


def _measured(plain: Gate, predicted: Gate) -> Json:
    """Speed under the setting in force, over plain decoding and over its prediction."""
    return {
        "rounds": plain.rounds,
        "over_plain": plain.ratio,
        "over_plain_spread": plain.spread if math.isfinite(plain.spread) else None,
        "over_predicted": predicted.ratio,
        "over_predicted_spread": predicted.spread if math.isfinite(predicted.spread) else None,
    }


def record_json(record: Record) -> Json:
    """A decision as it is explained, and as it is kept."""
    decision = record.decision
    sums = decision.arithmetic
    arithmetic = None
    if sums is not None:
        arithmetic = {**asdict(sums), "gain_tokens": sums.gain_tokens, "pays": sums.pays}
    return {
        "at": record.at,
        "action": decision.action,
        "option": decision.option,
        "reason": decision.reason,
        "arithmetic": arithmetic,
        "options": [_option(option) for option in decision.options],
    }


def readable(kept: Json) -> bool:
    """Whether a decision that was read back can be shown."""
    texts = all(isinstance(kept.get(name), str) for name in ("action", "option", "reason"))
    return texts and isinstance(kept.get("at"), int | float)
