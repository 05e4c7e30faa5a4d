"""The document that `autospec status --json` prints: plain data about everything that runs."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from autospec import __version__
from autospec.calibration.result import Calibration
from autospec.daemon.choose import Model, cost_of
from autospec.daemon.events import Events
from autospec.daemon.retuning.appliers import Applier
from autospec.daemon.setting import Setting
from autospec.daemon.supervisor import Supervisor
from autospec.daemon.tuner import Tuner
from autospec.engine.find import Engine

_EVENTS = 20


def model_report(supervisor: Supervisor, tuner: Tuner) -> dict[str, Any]:
    now = time.monotonic()
    life, setting = supervisor.life, supervisor.setting
    return {
        "name": supervisor.name,
        "state": str(life.phase),
        "reason": life.reason,
        "for_seconds": now - life.since,
        "pid": supervisor.server.pid if supervisor.server else None,
        "address": _address(supervisor),
        "fault": supervisor.fault,
        "degraded": list(supervisor.degraded),
        "planned": supervisor.planned,
        "deaths": len(life.deaths) + len(life.kills),
        "restarts_for_tuning": supervisor.restarts,
        "setting": _setting(setting),
        "not_live": tuner.why_not_live,
        "live": _live(supervisor, now),
        "calibration": _calibration(tuner.model.calibration),
        "costs": _costs(tuner.model, setting),
        "decision": asdict(tuner.decision) if tuner.decision else None,
    }


def report(
    models: list[dict[str, Any]],
    *,
    engine: Engine,
    applier: Applier,
    hardware: dict[str, Any],
    events: Events,
    config: str,
    pid: int,
    began: float,
) -> dict[str, Any]:
    """The whole document. `began` is monotonic; `events` come newest last, those of
    this life apart from `earlier_events`."""
    return {
        "version": __version__,
        "daemon": {"pid": pid, "for_seconds": time.monotonic() - began, "config": config},
        "engine": {
            "path": str(engine.server),
            "version": engine.version,
            "identity": engine.identity,
            "build_date": engine.build_date,
            "applier": {"name": applier.name, "why": applier.why},
        },
        "hardware": hardware,
        "models": models,
        "events": [asdict(event) for event in list(events.kept)[-_EVENTS:]],
        "earlier_events": [asdict(event) for event in events.earlier[-_EVENTS:]],
    }


def _address(supervisor: Supervisor) -> str:
    endpoint = supervisor.charge.endpoint
    if endpoint.socket is not None:
        return f"unix:{endpoint.socket}"
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"http://{host}:{endpoint.port}"


def _setting(setting: Setting) -> dict[str, Any]:
    speculation, plan = setting.speculation, setting.plan
    return {
        "type": ",".join(speculation.types) or "off",
        "n_max": speculation.n_max,
        "n_min": speculation.n_min,
        "p_min": speculation.p_min,
        "sources": dict(setting.sources),
        "why": setting.reason,
        "thresholds": plan.policy.to_json()["thresholds"] if plan and plan.scalar else None,
        "predicted_rate": plan.rate if plan else None,
        "predicted_plain_rate": plan.plain_rate if plan else None,
        "unsure": plan.unsure if plan else None,
        "live": setting.live,
        "basis": asdict(setting.basis),
        "unpinned": setting.unpinned.to_json() if setting.unpinned else None,
    }


def _live(supervisor: Supervisor, now: float) -> dict[str, Any]:
    watch, plan = supervisor.watch, supervisor.setting.plan
    rate, total = watch.mean_rate, watch.total
    plain = plan.plain_rate / supervisor.setting.basis.busy if plan else None
    positions = [
        {"position": index + 1, "share": count / total.drafts if total.drafts else None}
        for index, count in enumerate(total.per_position)
    ]
    return {
        "busy": watch.busy_now,
        "slots": supervisor.charge.launch.slots,
        "depth": watch.depth,
        "rate": watch.rate(now),
        "mean_rate": rate,
        "tokens": total.predicted,
        "rounds": total.drafts if total.tells_drafts else None,
        "drafted": total.drafted if total.tells_drafts else None,
        "accepted": total.accepted if total.tells_drafts else None,
        "acceptance": total.accepted / total.drafted if total.drafted else None,
        "by_position": positions,
        "gain_predicted": plan.rate / plan.plain_rate if plan and plan.speculate else None,
        "gain_measured": rate / plain if rate and plain else None,
    }


def _costs(model: Model, setting: Setting) -> dict[str, Any] | None:
    """What rounds cost where this model works now, by tokens drafted (0 to the longest), in ms."""
    if model.calibration is None:
        return None
    cost = cost_of(model, setting.basis)
    return {
        "plain_ms": cost.plain_ms,
        "round_ms": (cost.draft_ms + cost.verify_ms).tolist(),
        "spread_ms": cost.spread_ms.tolist(),
        "extrapolated": cost.extrapolated,
    }


def _calibration(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    return {
        "made_at": calibration.made_at,
        "seconds": calibration.seconds,
        "depths": list(calibration.surface.depths),
        "max_draft": calibration.max_draft,
        "rounds": len(calibration.rounds),
        "skipped": list(calibration.skipped),
        "remarks": list(calibration.remarks),
        "unsure": calibration.unsure,
    }
