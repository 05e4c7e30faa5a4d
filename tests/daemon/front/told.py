"""What a daemon would tell the page: an hour of two models, made up but like real ones."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

HOSTILE = '<img src=x onerror="document.title=1">'
REASON = '<script>document.body.dataset.owned = 1</script> & "quoted" \'</title>'
ROUNDS = [62.0, 71, 80, 88, 95, 103, 110, 118, 127, 121, 129, 138, 148, 157, 167, 178, 189]
NEEDED = [0.82, 0.55, 0.74, 0.63, 0.66, 0.75, 0.58, 0.16, 0.68, 0.7, 0.72, 0.66, 0.7, None]


def model(name: str, state: str = "ready", **fields: Any) -> Json:
    """A model that drafts up to 14 tokens, as the status document tells of it."""
    shares = [{"position": at + 1, "share": 0.94 * 0.92**at} for at in range(14)]
    return {
        "name": name,
        "state": state,
        "reason": "serves as chosen by measurement",
        "for_seconds": 3725.0,
        "pid": 4242,
        "address": "unix:/run/user/1000/autospec/chat.sock",
        "fault": None,
        "degraded": [],
        "planned": None,
        "deaths": 0,
        "restarts_for_tuning": 1,
        "not_live": None,
        "setting": {
            "type": "draft-simple",
            "n_max": 14,
            "n_min": 0,
            "p_min": 0.35,
            "sources": {"type": "auto", "n_max": "auto", "n_min": "auto", "p_min": "pinned"},
            "why": "drafting up to 14 tokens while each is at least 0.35 likely: 52.4 tokens/s "
            "predicted against 32.8 plain (1.60x)",
            "thresholds": NEEDED,
            "predicted_rate": 52.4,
            "predicted_plain_rate": 32.8,
            "unsure": False,
            "live": False,
            "basis": {"depth": 900.0, "busy": 2, "rounds": 612},
            "unpinned": {
                "type": "draft-simple",
                "n_max": 16,
                "n_min": 0,
                "p_min": 0.2,
                "live": False,
                "predicted_rate": 54.0,
                "loss": 0.03,
            },
        },
        "live": {
            "busy": 2,
            "slots": 4,
            "depth": 1312.4,
            "rate": 27.31,
            "mean_rate": 26.0,
            "tokens": 18211,
            "rounds": 3120,
            "drafted": 21100,
            "accepted": 15091,
            "acceptance": 0.715,
            "by_position": shares,
            "gain_predicted": 1.6,
            "gain_measured": 1.66,
        },
        "calibration": {
            "made_at": time.time() - 90_000,
            "seconds": 118.0,
            "depths": [0, 512, 4096],
            "max_draft": 16,
            "rounds": 120,
            "skipped": [],
            "remarks": [],
            "unsure": False,
        },
        "costs": {
            "plain_ms": 61.0,
            "round_ms": ROUNDS,
            "spread_ms": [1.0 + 0.5 * at for at in range(len(ROUNDS))],
            "extrapolated": True,
        },
        "decision": {"action": "keep", "reason": "less than 5% to gain", "option": "draft 14"},
    } | fields


def bare(name: str) -> Json:
    """A model that waits for its first child: nothing is known of it."""
    unknown = dict.fromkeys(("depth", "rate", "mean_rate", "acceptance"))
    none = dict.fromkeys(("tokens", "rounds", "drafted", "accepted", "busy"), 0)
    plain = {"type": "off", "n_max": 0, "n_min": 0, "p_min": 0.0, "sources": {"type": "auto"}}
    predicted = dict.fromkeys(
        ("thresholds", "predicted_rate", "predicted_plain_rate", "unsure"), None
    )
    return model(
        name,
        "backing off",
        reason="died 2 times within 60 s: out of memory; tried again in 8 s",
        deaths=2,
        setting=plain
        | predicted
        | {
            "why": "",
            "live": False,
            "basis": {"depth": 0.0, "busy": 1, "rounds": 0},
            "unpinned": None,
        },
        live=unknown
        | none
        | {"slots": 1, "by_position": [], "gain_predicted": None, "gain_measured": None},
        calibration=None,
        costs=None,
        decision=None,
    )


@dataclass
class Daemon:
    """Answers as the daemon does; `asked` are the requests."""

    models: list[Json] = field(default_factory=lambda: [model("chat"), bare("coder")])
    asked: list[Json] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    async def __call__(self, request: Json) -> Json:
        self.asked.append(request)
        match request["op"]:
            case "status":
                return self.status()
            case "history":
                return {"samples": {one["name"]: samples(one) for one in self.models}}
            case _:
                wanted = request["model"]
                named = [one for one in self.models if wanted in (None, one["name"])]
                return {"running": True, "models": [explained(one) for one in named]}

    def status(self) -> Json:
        now = self.began
        return {
            "version": "0.1.0",
            "daemon": {"pid": 4200, "for_seconds": 8000.0, "config": "/etc/autospec/a.toml"},
            "engine": {
                "path": "/opt/llama/llama-server",
                "version": "11434",
                "identity": "83df4506aabbccdd",
                "build_date": "2026-11-30",
                "applier": {"name": "scalar", "why": "settings are flags at start"},
            },
            "hardware": {"cpu": {"model": "A CPU"}, "memory": {"total": 2**36}, "gpus": []},
            "starting": None,
            "models": self.models,
            "events": [
                event(now - 3300, "info", None, "configuration reloaded; chat: restarted"),
                event(now - 2500, "info", self.models[0]["name"], "ready: serves as chosen"),
                event(now - 1900, "warning", self.models[0]["name"], "died: signal 9"),
                event(now - 70, "error", self.models[-1]["name"], f"said {REASON}"),
            ],
            "earlier_events": [],
        }


def event(at: float, level: str, name: str | None, text: str) -> Json:
    return {"at": at, "level": level, "model": name, "text": text}


def samples(one: Json) -> list[Json]:
    """An hour in which the model was brought back once, and had a quiet time."""
    chance = random.Random(7)
    now, found = time.time(), []
    for ago in range(3600, 0, -2):
        down = 1830 < ago < 1900
        quiet = down or 900 < ago < 1300 or one["calibration"] is None
        rate = 24 + 4 * math.sin(ago / 300) + chance.gauss(0, 0.8) + (3 if ago < 2400 else 0)
        found.append(
            {
                "at": now - ago,
                "state": "loading" if down else one["state"],
                "busy": 0 if quiet else 2,
                "depth": None if quiet else 1200.0,
                "rate": None if quiet else rate,
                "plain": None if one["calibration"] is None else 16.4,
                "acceptance": None if quiet else 0.7,
            }
        )
    return found


def explained(one: Json) -> Json:
    now = time.time()
    applier = {"name": "scalar", "why": "settings are flags at start", "loss": 0.031}
    document: Json = {
        "model": one["name"],
        "setting": one["setting"],
        "not_live": None,
        "applier": applier,
        "weighed": one["calibration"] is not None,
    }
    if not document["weighed"]:
        return document | {"why_not": "nothing was measured yet: `autospec calibrate` measures"}
    options = [
        ("draft up to 14, p_min 0.35", "in force", 54.6, True),
        ("draft up to 9, p_min 0.4", "restart", 53.1, False),
        ("plain decoding", "restart", 32.8, False),
    ]
    arithmetic = {
        "gain_rate": 4.1,
        "expected_seconds": 900.0,
        "price_seconds": 11.5,
        "price_tokens": 590.0,
        "gain_tokens": 3690.0,
        "pays": True,
    }
    return document | {
        "options": [
            {"name": name, "how": how, "rate": rate, "worse": rate - 2, "better": rate + 2}
            | {"measured": measured}
            for name, how, rate, measured in options
        ],
        "decisions": [
            decision(now - 400, "keep", "54.6 tokens/s against 53.1: less than 5% to gain"),
            decision(now - 2400, "restart", "54.6 tokens/s against 50.5 now") | {
                "arithmetic": arithmetic
            },
            decision(now - 90_000, "keep", f"of an earlier life {REASON}"),
        ],
    }  # fmt: skip


def decision(at: float, action: str, reason: str) -> Json:
    return {
        "at": at,
        "action": action,
        "option": "draft 14",
        "reason": reason,
        "arithmetic": None,
        "options": [],
    }
