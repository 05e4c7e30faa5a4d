"""Re-tuning against settings that stand still, on a fixed mixture. Not collected by pytest.

    python tests/benchmarks/retune.py [--quick | --every N] [--json] [--journal FILE]
                                      [--config FILE --model NAME]

`retune_mixture.toml` says what is played: texts in turn, a context that grows to its limit, a load
that goes from 1 to 4 slots and back. Every row asks all arms the same, one arm after the other in a
shuffled order, so that what drifts on the machine drifts for all:

- plain: no draft loaded;
- default: the engine's own numbers;
- static: the single triple that was best over a thinned mixture, found by a sweep over a grid;
- scalar: autospec with `live_policy = "off"`, with the restarts that it chooses;
- live: autospec with `live_policy = "auto"`.

Figures are tokens/s over all busy slots, prompts left out, and paired ratios with 95 % intervals.
Of both tuned arms it also tells how long requests would have waited for their restarts: that wait
is in no rate. With the demo's models unless a configuration is named. Run it with nothing else
running; `--journal FILE` keeps what was measured so far, row by row.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autospec.daemon.one_thread import calm_arithmetic

calm_arithmetic()  # before numpy is loaded: its threads would take cores from the servers

# ruff: noqa: E402
from autospec.bench.arms import FixedArm, Subject, default_speculation, of_triple
from autospec.bench.assemble import subject_of
from autospec.bench.fleet import Fleet
from autospec.bench.stats import overall_rate, overall_ratio
from autospec.bench.tuned import TunedArm
from autospec.bench.workloads import Request, deep_request, requests_of
from autospec.calibration.run import Progress
from autospec.config.load import load, parse
from autospec.config.schema import Config
from autospec.demo.assets import ensure_models
from autospec.engine.find import find_engine
from autospec.engine.launch import PLAIN
from autospec.engine.server import Server
from autospec.hardware.snapshot import snapshot
from autospec.tuning.replay import Triple

MIXTURE = Path(__file__).with_name("retune_mixture.toml")
SEED = 11
WITHIN = 1800.0
ARMS = ("plain", "default", "static", "scalar", "live")
AGAINST = ("plain", "default", "static")

GRID = [Triple(n, 0, p) for n in (1, 2, 4, 8, 16) for p in (0.0, 0.3, 0.6, 0.85)]
COARSE_GRID = [Triple(n, 0, p) for n in (2, 4, 8, 16) for p in (0.0, 0.6)]


@dataclass(frozen=True)
class Row:
    """One row of a phase: what is asked side by side."""

    phase: str
    requests: tuple[Request, ...]


def rows_of(mixture: Mapping[str, Any], every: int = 1) -> list[Row]:
    """The rows in their order; of each phase only every `every`th, and its first."""
    known = requests_of()
    taken: dict[str, int] = defaultdict(int)
    rows = []
    for phase in mixture["phase"]:
        for number in range(phase["rows"]):
            asked = []
            for _ in range(phase["at_once"]):
                index, taken[phase["text"]] = taken[phase["text"]], taken[phase["text"]] + 1
                if phase["text"] == "depth":
                    shares = phase["depth"]
                    room = mixture["context"] - mixture["tokens"]
                    asked.append(deep_request(int(shares[index % len(shares)] * room), index))
                else:
                    texts = known[phase["text"]]
                    asked.append(texts[index % len(texts)])
            if number % every == 0:
                rows.append(Row(phase["name"], tuple(asked)))
    return rows


async def play(server: Server, row: Row, tokens: int) -> float:
    """Milliseconds a token of the row, over all slots, prompts left out."""
    answers = await asyncio.gather(
        *(server.chat(one.messages, tokens=tokens, within=WITHIN) for one in row.requests)
    )
    made = sum(one.timings.predicted_n for one in answers)
    ms = sum(one.timings.predicted_ms for one in answers) / len(answers)
    return ms / made


async def best_triple(
    subject: Subject, rows: Sequence[Row], tokens: int, grid: Sequence[Triple], folder: Path
) -> Triple:
    """The triple that takes the least time: all on a thinned mixture, the best ones on more."""
    thin = rows[:: max(1, len(rows) // 8)]
    first = {triple: await _time(subject, thin, tokens, triple, folder) for triple in grid}
    finalists = sorted(grid, key=lambda triple: first[triple])[: len(grid) // 4]
    more = {triple: await _time(subject, rows, tokens, triple, folder) for triple in finalists}
    return min(finalists, key=lambda triple: more[triple])


async def _time(
    subject: Subject, rows: Sequence[Row], tokens: int, triple: Triple, folder: Path
) -> float:
    arm = FixedArm("sweep", subject.prepared, lambda _cell: of_triple(triple))
    await arm.start(folder / "sweep.sock")
    try:
        server = await arm.ready("")
        spent = [await play(server, row, tokens) for row in rows]
    finally:
        await arm.stop()
    _tell(f"sweep: {triple} {len(rows) * 1000 / sum(spent):.1f} tokens/s")
    return sum(spent)


async def run(
    subject: Subject,
    rows: Sequence[Row],
    tokens: int,
    triple: Triple,
    folder: Path,
    journal: Path | None,
) -> dict[str, Any]:
    """Every row on every arm, interleaved; what was measured."""
    fixed = {
        "plain": PLAIN,
        "default": default_speculation(subject.prepared.engine),
        "static": of_triple(triple),
    }
    tuned = {name: TunedArm(name, subject, live=name == "live") for name in ("scalar", "live")}
    arms = {
        name: FixedArm(name, subject.prepared, lambda _cell, wanted=wanted: wanted)
        for name, wanted in fixed.items()
    }
    fleet = Fleet({**arms, **tuned}, folder)
    order, chance = list(ARMS), random.Random(SEED)
    measured: list[dict[str, Any]] = []
    notes: dict[str, list[dict[str, Any]]] = {name: [] for name in tuned}
    try:
        for number, row in enumerate(rows):
            chance.shuffle(order)
            spent = {}
            for name in order:
                asked = time.monotonic()
                if (server := await fleet.get(name, row.phase)) is None:
                    continue
                waited = time.monotonic() - asked
                async with fleet.alive(name):
                    spent[name] = await play(server, row, tokens)
                if name in tuned and name not in fleet.failed:
                    told = tuned[name].take()
                    told["rounds"] = len(told["rounds"])
                    notes[name].append({"row": number, "waited_s": waited if number else 0, **told})
            measured.append({"phase": row.phase, "ms": spent})
            if journal is not None:
                settings = {name: note[-1] for name, note in notes.items() if note}
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**measured[-1], "settings": settings}) + "\n")
            shown = "  ".join(f"{name} {1 / ms * 1000:.1f}" for name, ms in sorted(spent.items()))
            _tell(f"{number + 1} of {len(rows)}, {row.phase}: {shown} tokens/s")
        decisions = {
            name: (await arm.explain())["decisions"]
            for name, arm in tuned.items()
            if name not in fleet.failed
        }
    finally:
        await fleet.close()
    return {
        "rows": measured,
        "settings": notes,
        "decisions": decisions,
        "failed": fleet.failed,
        "static": triple._asdict(),
    }


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """Rates and paired ratios, for each phase and for all rows together."""
    phases: dict[str, list[dict[str, float]]] = defaultdict(list)
    for row in result["rows"]:
        phases[row["phase"]].append(row["ms"])
        phases["mixture"].append(row["ms"])
    found: dict[str, Any] = {}
    for phase, rows in phases.items():
        arms = [name for name in ARMS if all(name in row for row in rows)]
        column = {name: [row[name] for row in rows] for name in arms}
        found[phase] = {
            name: {
                "rate": overall_rate(column[name], seed=SEED).value,
                "against": {
                    other: vars(overall_ratio(column[name], column[other], seed=SEED))
                    for other in AGAINST
                    if other in arms and other != name
                },
            }
            for name in arms
        }
    return found


def configuration(mixture: Mapping[str, Any], file: Path | None, name: str | None) -> Config:
    """The user's configuration, or one of the demo's pair."""
    if file is not None:
        return load(file)
    models = ensure_models(lambda *_: None)
    text = (
        f'[models.{name or "demo"}]\npath = "{models.target}"\ndraft = "{models.draft}"\n'
        f"context = {mixture['context'] * mixture['slots']}\nslots = {mixture['slots']}\n"
        "[retune]\nafter = 20\n"
    )
    return parse(text, path=Path("autospec.toml"))


async def main(options: argparse.Namespace) -> dict[str, Any]:
    mixture = tomllib.loads(MIXTURE.read_text("utf-8"))
    config = configuration(mixture, options.config, options.model)
    name = options.model or next(iter(config.enabled_models()))
    said: set[str] = set()

    def progress(step: Progress) -> None:
        series = step.what.partition(":")[0]
        if series not in said:
            said.add(series)
            _tell(f"measuring {series}")

    subject, _ = await subject_of(find_engine(), config, name, snapshot().key(), progress)
    every = 4 if options.quick else options.every
    rows = rows_of(mixture, every)
    tokens = 24 if options.quick else mixture["tokens"]
    with tempfile.TemporaryDirectory(prefix="autospec-") as folder:
        grid = GRID if every == 1 else COARSE_GRID
        triple = await best_triple(subject, rows, tokens, grid, Path(folder))
        result = await run(subject, rows, tokens, triple, Path(folder), options.journal)
    return {"every": every, "tokens": tokens, "summary": summary(result), **result}


def show(document: Mapping[str, Any]) -> None:
    print(f"best static triple: {document['static']}")
    for name, reason in document["failed"].items():
        print(f"{name} took no part to the end: {reason}")
    for phase, arms in document["summary"].items():
        print(f"\n{phase}")
        for name, figures in arms.items():
            words = [
                f"{one['value']:.2f}x of {other}"
                + (f" ({one['low']:.2f} to {one['high']:.2f})" if one["low"] is not None else "")
                for other, one in figures["against"].items()
            ]
            print(f"  {name:8} {figures['rate']:6.1f} tokens/s  {', '.join(words)}")
    for name, notes in document["settings"].items():
        waited = sum(note["waited_s"] for note in notes)
        restarts = notes[-1]["restarts"] if notes else 0
        print(f"{name}: {restarts} restarts; requests would have waited {waited:.1f} s for them")
    for name, decisions in document["decisions"].items():
        print(f"\nlast decisions of {name}")
        for one in decisions:
            print(f"  {one['action']}: {one['reason']}")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    less = parser.add_mutually_exclusive_group()
    less.add_argument("--quick", action="store_true", help="a quarter of the rows, short answers")
    less.add_argument(
        "--every",
        type=int,
        default=1,
        choices=(1, 2, 3, 4),
        help="play one row in so many; the sweep is coarser over 1",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--journal", type=Path, help="append every row to this file, as JSON lines")
    parser.add_argument("--config", type=Path, help="a configuration in place of the demo's")
    parser.add_argument("--model", help="the model of that configuration")
    given = parser.parse_args()
    done = asyncio.run(main(given))
    print(json.dumps(done, indent=1)) if given.json else show(done)
