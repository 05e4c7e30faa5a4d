"""Traffic and random faults for half an hour: nothing lost that could be saved, nothing grows.

    python tests/soak/soak.py [--minutes 30] [--seed N] [--engine PATH] [--json]

Serves a small real pair through the front door. Each fault strikes a child that is at work:
killed, crashed, told to end, frozen; or the configuration changes, which restarts it as planned.
A request must be answered whole, unless its answer had begun to stream; then the stream must end
in an error event. Exits with 1 where anything was lost, grew, or was left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from traffic import Client, Seen
from watching import MIB, Sample, growth, sample

from autospec.daemon.control import ask
from autospec.demo.assets import ensure_models
from autospec.errors import AutospecError
from autospec.paths import cache

CLIENTS = 4
SAMPLE_SECONDS = 5.0
RECOVERY_SECONDS = 240.0
"""Within which a model must be ready again; a frozen child is given its patience first."""

SIGNALS = {
    "killed": signal.SIGKILL,
    "crashed": signal.SIGSEGV,
    "told to end": signal.SIGTERM,
    "frozen": signal.SIGSTOP,
}
PLANNED = "planned restart"

FORGIVEN, WINDOW = 4, 600.0
"""At so many deaths within so many seconds the daemon still goes on; with more it pauses a model
that keeps dying, as it should."""


@dataclass
class Soak:
    """One run. `recovered` holds the seconds from each fault to a model that is ready again."""

    config: Path
    write: Callable[[int], None]
    daemon: psutil.Process
    random: random.Random
    kinds: tuple[str, ...]
    seen: Seen = field(default_factory=Seen)
    recovered: dict[str, list[float]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    async def model(self) -> dict[str, Any] | None:
        try:
            answer = await asyncio.to_thread(ask, {"op": "status"})
        except AutospecError:
            return None
        return next(iter(answer["models"]), None)

    async def ready(self, within: float, but: int | None = None) -> dict[str, Any]:
        """The model when it is ready with another child than `but`."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            model = await self.model()
            if model and model["state"] == "ready" and model["pid"] not in (None, but):
                return model
            if model and model["state"] == "failed":
                raise AssertionError(f"the model failed: {model['reason']}")
            await asyncio.sleep(0.1)
        raise AssertionError(f"no model was ready within {within:.0f} s")

    async def strike(self, between: tuple[float, float]) -> None:
        """One fault after the other, each when the last one is over."""
        n_max = 4
        order: list[str] = []
        deaths: deque[float] = deque(maxlen=FORGIVEN)
        while True:
            await asyncio.sleep(self.random.uniform(*between))
            order = order or self.random.sample(self.kinds, len(self.kinds))
            kind = order.pop()
            if kind != PLANNED:
                if len(deaths) == FORGIVEN and time.monotonic() - deaths[0] < WINDOW:
                    continue
                deaths.append(time.monotonic())
            pid = (await self.ready(RECOVERY_SECONDS))["pid"]
            began = time.monotonic()
            if kind == PLANNED:
                n_max = 3 if n_max == 4 else 4
                self.write(n_max)
                await asyncio.to_thread(ask, {"op": "reload"})
            else:
                psutil.Process(pid).send_signal(SIGNALS[kind])
                self.seen.deaths += 1
            self.faults.append(kind)
            await self.ready(RECOVERY_SECONDS, but=pid)
            self.recovered.setdefault(kind, []).append(time.monotonic() - began)

    async def watch(self, *folders: Path) -> None:
        while True:
            self.samples.append(sample(self.daemon, *folders))
            await asyncio.sleep(SAMPLE_SECONDS)

    async def run(self, base: str, seconds: float, between: tuple[float, float]) -> list[str]:
        """Everything at once for so long; what went wrong."""
        await self.ready(300.0)
        wrong = []
        async with aiohttp.ClientSession() as session:
            seeds = [self.random.getrandbits(32) for _ in range(CLIENTS)]
            clients = [Client(base, session, self.seen, seed) for seed in seeds]
            traffic = [asyncio.create_task(client.run()) for client in clients]
            striking = asyncio.create_task(self.strike(between))
            watching = asyncio.create_task(self.watch(self.config.parent))
            done, _ = await asyncio.wait(
                [*traffic, striking, watching],
                timeout=seconds,
                return_when=asyncio.FIRST_EXCEPTION,
            )
            wrong += [f"{task.exception()!r}" for task in done if not task.cancelled()]
            for task in (striking, watching, *traffic):
                task.cancel()
            await asyncio.wait([*traffic, striking, watching])
        return wrong


def own_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def figures(soak: Soak, wrong: list[str], seconds: float) -> dict[str, Any]:
    grown = growth(soak.samples) if soak.samples else {}
    outcomes: dict[str, dict[str, int]] = {}
    for (kind, outcome), count in sorted(soak.seen.outcomes.items()):
        outcomes.setdefault(kind, {})[outcome] = count
    return {
        "seconds": round(seconds),
        "requests": outcomes,
        "lost": soak.seen.lost,
        "faults": dict(Counter(soak.faults)),
        "recovery_seconds": {
            kind: {"median": round(statistics.median(times), 1), "most": round(max(times), 1)}
            for kind, times in soak.recovered.items()
        },
        "growth": {
            name: {
                "second_quarter": before,
                "last_quarter": after,
                "most": max(getattr(one, name) for one in soak.samples),
                "flat": flat,
            }
            for name, (before, after, flat) in grown.items()
        },
        "wrong": [
            *wrong,
            *(f"{name} grew" for name, (_, _, flat) in grown.items() if not flat),
            *(["requests were lost"] if soak.seen.lost else []),
        ],
    }


def told(found: dict[str, Any]) -> str:
    lines = [f"{found['seconds']} s"]
    for kind, outcomes in found["requests"].items():
        lines.append(f"  {kind:20} " + ", ".join(f"{n} {what}" for what, n in outcomes.items()))
    for kind, times in found["recovery_seconds"].items():
        count = found["faults"][kind]
        lines.append(f"  {kind:20} {count} times; ready again after {times['median']} s"
                     f" (at most {times['most']})")  # fmt: skip
    for name, one in found["growth"].items():
        unit = MIB if name in ("memory", "state") else 1
        shown = (one[key] / unit for key in ("second_quarter", "last_quarter", "most"))
        before, after, most = shown
        verdict = "flat" if one["flat"] else "GREW"
        span = f"{before:.1f} to {after:.1f}, at most {most:.1f}{' MiB' * (unit > 1)}"
        lines.append(f"  {name:20} {span}: {verdict}")
    lines += [f"  LOST {one}" for one in found["lost"][:20]]
    return "\n".join([*lines, *(found["wrong"] or ["nothing was lost, nothing grew"])])


def soak(home: Path, asked: argparse.Namespace) -> dict[str, Any]:
    if asked.fake:
        target = draft = asked.fake
    else:
        models = ensure_models(lambda *_: None, cache() / "models")
        target, draft = models.draft, models.draft_one_dropped
    for kind in ("CACHE", "STATE", "CONFIG"):
        os.environ[f"XDG_{kind}_HOME"] = str(home / kind.lower())
    os.environ["XDG_RUNTIME_DIR"] = str(home / "run")
    config, port = home / "autospec.toml", own_port()

    def write(n_max: int) -> None:
        config.write_text(
            f'[server]\nlisten = "127.0.0.1:{port}"\nwait = "{RECOVERY_SECONDS:.0f}s"\n'
            f'[models.chat]\npath = "{target}"\ndraft = "{draft}"\ncontext = 2048\nslots = 2\n'
            f'type = "draft-simple"\nn_max = {n_max}\nextra = ["--threads", "1"]\n'
        )

    write(4)
    log = home / "log"
    engine = ["--engine", str(asked.engine)] if asked.engine else []
    command = [sys.executable, "-m", "autospec", "serve", "--config", str(config), *engine]
    with log.open("wb") as output:
        served = subprocess.Popen([*command, "--no-calibrate"], stdout=output, stderr=output)
    began = time.monotonic()
    run = Soak(config, write, psutil.Process(served.pid), random.Random(asked.seed), asked.faults)
    try:
        between = (asked.least, 3 * asked.least)
        base = f"http://127.0.0.1:{port}"
        wrong = asyncio.run(run.run(base, 60 * asked.minutes, between))
        family = run.daemon.children(recursive=True)
        served.terminate()
        if (code := served.wait(120)) != 0:
            wrong.append(f"the daemon ended with {code}")
        _, left = psutil.wait_procs(family, timeout=10)
        wrong += [f"{process} was left behind" for process in left]
        if b"Traceback" in log.read_bytes():
            wrong.append("there is a traceback in the daemon's log")
    except BaseException:
        sys.stderr.write(log.read_text(errors="replace")[-5000:])
        raise
    finally:
        if served.poll() is None:
            served.kill()
            served.wait()
    found = figures(run, wrong, time.monotonic() - began)
    if found["wrong"]:
        sys.stderr.write(log.read_text(errors="replace")[-5000:])
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Traffic and faults, for long.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--engine", type=Path, help="llama-server, or its folder")
    parser.add_argument("--least", type=float, default=15.0, help="seconds between faults, least")
    parser.add_argument(
        "--faults",
        type=lambda text: tuple(text.split(",")),
        default=(*SIGNALS, PLANNED),
        help=f"some of: {', '.join((*SIGNALS, PLANNED))}",
    )
    parser.add_argument("--fake", type=Path, help="a model's file for an engine that is none")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    sys.stderr.write(f"{asked.minutes:g} minutes, --seed {asked.seed}\n")
    with tempfile.TemporaryDirectory(prefix="as-", ignore_cleanup_errors=True) as home:
        found = soak(Path(home), asked)
    sys.stdout.write((json.dumps(found, indent=2) if asked.json else told(found)) + "\n")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
